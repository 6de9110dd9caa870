//! Call stacks in perf's rings, from the CPU's branch records (LBR call stack).

use super::{Calls, Inbox, Pid, RawSample, StackKey};

/// Returns the number of a sample's call stack. Of the kernel's frames only the innermost is known.
pub(super) fn number(
    pid: Pid,
    sample: &RawSample,
    calls: Calls<'_>,
    inbox: &mut impl Inbox,
) -> StackKey {
    let ip = sample.ip.0;
    let (inside, in_kernel) = if sample.ip.is_kernel() {
        (None, Some(ip))
    } else {
        (Some(ip), None)
    };
    let frames = in_kernel.into_iter().chain(calls.frames(inside));
    inbox.stack(pid, (usize::from(in_kernel.is_some()), true), frames)
}

#[cfg(test)]
mod tests {
    use perf_event_open_sys::bindings as sys;

    use super::super::tests::{KIND, record, thread};
    use super::*;
    use crate::perf::layout::Layout;
    use crate::stream::bulk::{Reading, RingKind, RingReport, RingState};
    use crate::stream::clock::Clock;
    use crate::stream::decode::tests::Stacked;
    use crate::units::{Cpu, EventId, KtimeNs};

    /// Samples with LBR call stacks: in the kernel one kernel frame, then those in user space.
    #[test]
    fn stacks_by_calls() {
        let calls = sys::PERF_SAMPLE_BRANCH_USER | sys::PERF_SAMPLE_BRANCH_CALL_STACK;
        let kind = RingKind {
            layout: Layout {
                sample_type: KIND.layout.sample_type | u64::from(sys::PERF_SAMPLE_BRANCH_STACK),
                branch_sample_type: calls.into(),
                ..KIND.layout
            },
            ..KIND
        };
        let sample = |misc, ip, branches: &[u64]| {
            let head = [ip, thread(7, 8), 1100, branches.len() as u64 / 3];
            record(sys::PERF_RECORD_SAMPLE, misc, &[&head, branches].concat())
        };
        let in_kernel = 0xffff_ffff_8100_0000;
        let newest_first = [0x2020, 0x3000, 0, 0x1010, 0x2000, 0];
        let ring = [
            sample(sys::PERF_RECORD_MISC_USER, 0x3042, &newest_first),
            sample(sys::PERF_RECORD_MISC_KERNEL, in_kernel, &newest_first),
            sample(sys::PERF_RECORD_MISC_USER, 0x1000, &[]),
        ];
        let reading = Reading {
            kind: &kind,
            clock: &Clock::new(KtimeNs(100)),
            wanted: |_| true,
        };
        let (mut inbox, mut report) = (Stacked::default(), RingReport::default());
        let mut state = RingState::new(Cpu(3), EventId(1));
        state.decode(&ring.concat(), &reading, &mut inbox, &mut report);
        assert_eq!((report.decoded.samples, report.decoded.malformed), (3, 0));
        let (user, kernel) = (
            vec![0x3042, 0x2021, 0x1011],
            vec![in_kernel, 0x3000, 0x2021, 0x1011],
        );
        assert_eq!(
            inbox.stacks,
            [(Pid(7), (0, true), user), (Pid(7), (1, true), kernel)]
        );
    }
}

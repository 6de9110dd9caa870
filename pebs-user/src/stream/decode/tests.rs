use pebs_common::record::{UserShape, sample_flag};

use super::wire::ACCESS;
use super::*;
use crate::stream::sample::SampleKind;

/// Collects the stacks and gives them no number.
#[derive(Default)]
pub struct Stacked {
    pub rest: Unordered,
    pub stacks: Vec<(Pid, (usize, bool), Vec<u64>)>,
    copies: Vec<Copied>,
}

/// A stack to be unwound: process and time, ip, frames in the kernel, the last register, memory.
type Copied = ((Pid, TraceNs), Option<u64>, Vec<u64>, u64, Vec<u8>);

impl Inbox for Stacked {
    fn sample(&mut self, pid: Pid, tid: Tid, sample: RawSample) {
        self.rest.sample(pid, tid, sample);
    }

    fn record(&mut self, record: Record) {
        self.rest.record(record);
    }

    fn payloads(&mut self) -> &mut Payloads {
        &mut self.rest.payloads
    }

    fn user_stack(&mut self, of: (Pid, TraceNs), copy: &UserCopy<'_>) -> StackKey {
        let kernel = copy.kernel.iter().map(|word| u64::from_ne_bytes(*word));
        let last = copy.registers[REGISTER_WORDS - 1];
        let memory = copy.stack.to_vec();
        self.copies
            .push((of, copy.ip, kernel.collect(), last, memory));
        StackKey::NONE
    }

    fn stack(
        &mut self,
        pid: Pid,
        shape: (usize, bool),
        frames: impl Iterator<Item = u64>,
    ) -> StackKey {
        self.stacks.push((pid, shape, frames.collect()));
        StackKey::NONE
    }
}

fn framed(words: &[u64]) -> Vec<u8> {
    let mut bytes = ((words.len() * 8) as u32).to_ne_bytes().to_vec();
    bytes.extend([0; 4]);
    words
        .iter()
        .for_each(|word| bytes.extend(word.to_ne_bytes()));
    bytes
}

fn decode_all(bytes: &[u8]) -> (Decoded, Unordered) {
    let mut clock = Clock::new(KtimeNs(1000));
    let mut inbox = Unordered::default();
    let decoded = decode(Cpu(3), bytes, &mut clock, &mut inbox);
    (decoded, inbox)
}

/// A sample and a mark with arguments come out with every field where it belongs.
#[test]
fn fields() {
    let head = Head::new(Kind::Sample, sample_flag::EXACT_IP, 2, 10, 11);
    let mut bytes = framed(&[head.0, 1500, 0x40_1000, 0x7fff_0000]);
    let head = Head::new(
        Kind::MarkArgs,
        Role::Begin as u8 | mark_flag::ID_VALID,
        7,
        10,
        12,
    );
    bytes.extend(framed(&[head.0, 1600, 0x7fff_0008, 42, 0b1, 99, 0, 0]));
    let (decoded, inbox) = decode_all(&bytes);
    assert_eq!(
        decoded,
        Decoded {
            samples: 1,
            marks: 1,
            ..Decoded::default()
        }
    );
    let sample = RawSample {
        time: TraceNs(500),
        ip: Ip(0x40_1000),
        sp: 0x7fff_0000,
        kind: SampleKind::new(Cpu(3), EventId(2), (true, false)),
    };
    assert_eq!(inbox.samples, [(Pid(10), Tid(11), sample)]);
    let Body::Mark {
        probe,
        role,
        id,
        args,
        ..
    } = inbox.records[0].body
    else {
        panic!("no mark")
    };
    assert_eq!(
        (probe, role, id, args.valid),
        (ProbeId(7), Role::Begin, Some(42), 1)
    );
    assert_eq!(inbox.payloads.get(args)[..8], 99u64.to_ne_bytes());
}

/// A sample with its access is a sample like any other; the access is passed on separately.
#[test]
fn accesses() {
    #[derive(Default)]
    struct Accesses(Unordered, Vec<(Tid, TraceNs, Access)>);
    impl Inbox for Accesses {
        fn sample(&mut self, pid: Pid, tid: Tid, sample: RawSample) {
            self.0.sample(pid, tid, sample);
        }
        fn access(&mut self, tid: Tid, sample: &RawSample, access: Access) {
            self.1.push((tid, sample.time, access));
        }
        fn record(&mut self, record: Record) {
            self.0.record(record);
        }
        fn payloads(&mut self) -> &mut Payloads {
            self.0.payloads()
        }
    }
    let mut bytes = Vec::new();
    for addr in [0x7000, 0] {
        let head = Head::new(Kind::SampleAccess, 0, 1, 10, 11);
        let record = SampleAccess {
            sample: Sample {
                head,
                time_ns: 1500,
                ip: 0x40_1000,
                sp: 0x7fff_0000,
            },
            addr,
            weight: 0,
            data_src: 0,
        };
        let sample = record.sample;
        let mut words = vec![sample.head.0, sample.time_ns, sample.ip, sample.sp];
        words.resize(ACCESS, 0);
        words.extend([record.addr, record.weight, record.data_src]);
        bytes.extend(framed(&words));
    }
    let mut inbox = Accesses::default();
    let decoded = decode(Cpu(3), &bytes, &mut Clock::new(KtimeNs(1000)), &mut inbox);
    assert_eq!((decoded.samples, decoded.malformed), (2, 0));
    assert_eq!(inbox.0.samples.len(), 2);
    assert_eq!(inbox.0.samples[0].2.sp, 0x7fff_0000);
    let [(tid, time, access)] = inbox.1[..] else {
        panic!("one says something")
    };
    assert_eq!(
        (tid, time, access.addr),
        (Tid(11), TraceNs(500), Some(0x7000))
    );
}

/// A sample with a stack is a sample; the number of frames must match its depth.
#[test]
fn stacks() {
    let head = Head::new(Kind::SampleStack, sample_flag::KERNEL, 1, 10, 11).0;
    let depth = StackDepth::new(1, 2, true).0;
    let record = [head, 1500, 0xffff_8000_0000_1000, 0, depth, 1, 2, 3, 99];
    let (mut clock, mut inbox) = (Clock::new(KtimeNs(1000)), Stacked::default());
    let decoded = decode(Cpu(3), &framed(&record), &mut clock, &mut inbox);
    assert_eq!((decoded.samples, decoded.malformed), (1, 0));
    assert_eq!(inbox.stacks, [(Pid(10), (1, true), vec![1, 2, 3])]);
    assert!(inbox.rest.samples[0].2.kind.is_kernel());
    let short = framed(&record[..7]);
    let decoded = decode(Cpu(3), &short, &mut clock, &mut inbox);
    assert_eq!((decoded.samples, decoded.malformed), (0, 1));
}

/// Samples and threads that leave the CPU, with registers, frames in the kernel and stack memory behind the record; if these
/// are cut off, the whole record is malformed.
#[test]
fn user_stacks() {
    let mut copied = vec![UserShape::new((4, 2, false), 16).0];
    copied.extend(0..REGISTER_WORDS as u64);
    copied.extend([1, 2, 99, 99, 7, 8]);
    let of = |kind, flags| {
        let mut record = vec![Head::new(kind, flags, 0, 10, 11).0, 5000, 77, 1];
        record.extend(&copied);
        record
    };
    let sampled = of(Kind::SampleUser, 0);
    let (mut clock, mut inbox) = (Clock::new(KtimeNs(1000)), Stacked::default());
    let decoded = decode(Cpu(3), &framed(&sampled), &mut clock, &mut inbox);
    assert_eq!((decoded.samples, decoded.malformed), (1, 0));
    let switched = of(Kind::SwitchUser, switch_flag::PREEMPTED);
    let decoded = decode(Cpu(3), &framed(&switched), &mut clock, &mut inbox);
    assert_eq!((decoded.tasks, decoded.malformed), (1, 0));
    let body = inbox.rest.records[0].body;
    let is_out = matches!(
        body,
        Body::SwitchOut {
            preempted: true,
            ..
        }
    );
    assert!(is_out, "{body:?}");
    let at = (Pid(10), TraceNs(4000));
    let memory = [7u64, 8].map(u64::to_ne_bytes).concat();
    let copies = [Some(77), None].map(|ip| (at, ip, vec![1, 2], 20, memory.clone()));
    assert_eq!(inbox.copies, copies);
    for record in [sampled, switched] {
        let short = framed(&record[..record.len() - 1]);
        let decoded = decode(Cpu(3), &short, &mut clock, &mut inbox);
        assert_eq!(decoded.malformed, 1);
    }
}

/// Interruptions and their length; an unknown kind is counted as malformed.
#[test]
fn interference() {
    let task = |which: u8| {
        framed(&[
            Head::of_task(TaskKind::Interference, which, 1, 1).0,
            2000,
            7,
        ])
    };
    let (decoded, inbox) = decode_all(&[task(3), task(99)].concat());
    assert_eq!((decoded.tasks, decoded.malformed), (1, 1));
    let which = Interference::Interrupt;
    assert_eq!(inbox.records[0].body, Body::Interference { which, ns: 7 });
}

/// Discarded records are skipped, unknown and short ones counted, and all after them read.
#[test]
fn odd_records() {
    let mut bytes = framed(&[0; 2]);
    bytes[3] |= 0x40;
    bytes.extend(framed(&[0xf]));
    bytes.extend(framed(&[Head::new(Kind::Mark, 0, 0, 1, 1).0]));
    bytes.extend(framed(&[Head::of_task(TaskKind::Exit, 0, 1, 1).0, 2000, 1]));
    let (decoded, inbox) = decode_all(&bytes);
    assert_eq!(
        decoded,
        Decoded {
            tasks: 1,
            malformed: 2,
            ..Decoded::default()
        }
    );
    assert_eq!(
        inbox.records[0].body,
        Body::Exit {
            last: true,
            signal: 0
        }
    );
}

proptest::proptest! {
    /// No bytes make it panic.
    #[test]
    fn any_bytes(bytes: Vec<u8>) {
        decode_all(&bytes);
    }

    /// Nor do well-framed records of any content.
    #[test]
    fn any_words(words: Vec<(u8, [u64; 5])>) {
        let bytes: Vec<u8> = words
            .iter()
            .flat_map(|(kind, words)| {
                let mut words = *words;
                words[0] = words[0] & !0xf | u64::from(kind & 0xf);
                framed(&words)
            })
            .collect();
        let (decoded, _) = decode_all(&bytes);
        let Decoded { samples, marks, tasks, malformed, .. } = decoded;
        proptest::prop_assert_eq!(samples + marks + tasks + malformed, words.len() as u64);
    }
}

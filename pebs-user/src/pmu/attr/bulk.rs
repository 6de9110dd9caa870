//! Settings of the `bulk` transport: the kernel writes samples into a ring without a program. With PEBS, the
//! hardware can then collect many records before one interrupt.

use perf_event_open_sys::bindings::{self as sys, perf_event_attr};
use thiserror::Error;

use super::{EventClass, HardwareUnit, ResolvedEvent, large_pebs, lbr};
use crate::pmu::host::Host;
use crate::pmu::target::Target;
use crate::units::Cpu;

/// Fields of a sample. CPU and event are the ring's.
const FIELDS: u32 = sys::PERF_SAMPLE_IP | sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME;

/// Fields that the hardware's own buffer can hold, from Skylake on.
///
/// Source: `LARGE_PEBS_FLAGS`, arch/x86/events/perf_event.h; `intel_pmu_large_pebs_flags`,
/// arch/x86/events/intel/core.c.
const BUFFERED_FIELDS: u32 = FIELDS
    | sys::PERF_SAMPLE_ADDR
    | sys::PERF_SAMPLE_ID
    | sys::PERF_SAMPLE_CPU
    | sys::PERF_SAMPLE_STREAM_ID
    | sys::PERF_SAMPLE_DATA_SRC
    | sys::PERF_SAMPLE_IDENTIFIER
    | sys::PERF_SAMPLE_TRANSACTION
    | sys::PERF_SAMPLE_PHYS_ADDR
    | sys::PERF_SAMPLE_REGS_INTR
    | sys::PERF_SAMPLE_REGS_USER
    | sys::PERF_SAMPLE_PERIOD
    | sys::PERF_SAMPLE_CODE_PAGE_SIZE
    | sys::PERF_SAMPLE_WEIGHT
    | sys::PERF_SAMPLE_WEIGHT_STRUCT;

/// Registers that the hardware's own buffer can hold: ax to ip, flags, r8 to r15.
///
/// Source: `PEBS_GP_REGS`, arch/x86/events/perf_event.h.
const BUFFERED_REGISTERS: u64 = 0x3ff | 0xff << 16;

/// Why the kernel takes one interrupt for each record of a precise event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum NotBuffered {
    /// The event is not precise: no hardware writes its records.
    #[error("the event is not precise")]
    NotPrecise,
    /// The kernel adjusts the reset value to a frequency.
    #[error("the reset value follows a frequency")]
    Frequency,
    /// An interrupt was requested after this number of records.
    #[error("a wake-up after each record is asked for")]
    WakeUp,
    /// A clock was set, which would replace the record's own time.
    #[error("samples are timed with a clock of the kernel's")]
    Clock,
    /// These fields are not written by the hardware.
    #[error("the hardware's buffer does not hold the fields {0:#x}")]
    Fields(u64),
    /// The hardware writes only the general-purpose registers of the CPU.
    #[error("the hardware's buffer does not hold these registers: {0:#x}")]
    Registers(u64),
    /// Registers in user mode, while the kernel is sampled too.
    #[error("user registers are asked for while the kernel is sampled")]
    UserRegisters,
}

/// Checks that the kernel collects many records of a precise event before one interrupt.
///
/// Source: `intel_pmu_hw_config` and `intel_pmu_large_pebs_flags`, arch/x86/events/intel/core.c.
///
/// # Errors
/// The first setting that silently disables this in the kernel.
pub(crate) fn check_buffered(attr: &perf_event_attr) -> Result<(), NotBuffered> {
    if attr.precise_ip() == 0 {
        return Err(NotBuffered::NotPrecise);
    }
    if attr.freq() != 0 {
        return Err(NotBuffered::Frequency);
    }
    // The kernel accepts it without a watermark, too, if no wake-up is requested at all.
    if attr.watermark() == 0 {
        return Err(NotBuffered::WakeUp);
    }
    if attr.use_clockid() != 0 && attr.sample_type & u64::from(sys::PERF_SAMPLE_TIME) != 0 {
        return Err(NotBuffered::Clock);
    }
    let others = attr.sample_type & !u64::from(BUFFERED_FIELDS);
    if others != 0 {
        return Err(NotBuffered::Fields(others));
    }
    let registers = attr.sample_regs_intr & !BUFFERED_REGISTERS;
    if attr.sample_type & u64::from(sys::PERF_SAMPLE_REGS_INTR) != 0 && registers != 0 {
        return Err(NotBuffered::Registers(registers));
    }
    let user_registers = attr.sample_type & u64::from(sys::PERF_SAMPLE_REGS_USER) != 0;
    if user_registers && attr.exclude_kernel() == 0 {
        return Err(NotBuffered::UserRegisters);
    }
    Ok(())
}

impl ResolvedEvent {
    /// Settings of the bulk transport for one target with a ring of `ring_bytes`.
    ///
    /// A fixed period, a watermark instead of a wake-up for each record, no kernel clock on hardware events, and
    /// only fields that PEBS writes itself: see [`check_buffered`]. Lost records and throttling have a time; losses
    /// after the last record come from the counter (Linux 6.0).
    #[must_use]
    pub fn bulk_attr(&self, target: Target, ring_bytes: u32) -> perf_event_attr {
        let mut attr = self.attr_for(target);
        attr.sample_type = u64::from(FIELDS) | self.access | self.calls_field();
        if attr.sample_regs_intr != 0 {
            attr.sample_type |= u64::from(sys::PERF_SAMPLE_REGS_INTR);
        }
        attr.read_format |= u64::from(sys::PERF_FORMAT_LOST);
        attr.set_sample_id_all(1);
        attr.set_watermark(1);
        // The rings are read at intervals; wake-ups are not used.
        attr.__bindgen_anon_2.wakeup_watermark = ring_bytes / 2;
        attr
    }

    /// Whether this machine's hardware collects several records before one interrupt, with the settings of
    /// [`ResolvedEvent::bulk_attr`].
    #[must_use]
    pub fn is_buffered(&self, host: &Host) -> bool {
        let mut attr = self.bulk_attr(Target::Cpu(Cpu(0)), 1 << 19);
        if lbr::are_buffered(host) {
            attr.sample_type &= !self.calls_field();
        }
        large_pebs::check(self, host).is_ok() && check_buffered(&attr).is_ok()
    }

    /// Whether one interrupt may find several records, so that a program sees only the last one.
    #[must_use]
    pub const fn leaves_rest(&self) -> bool {
        let core = matches!(
            self.class,
            EventClass::Hardware {
                unit: HardwareUnit::Core,
                ..
            }
        );
        core && self.precise_requested > 0
    }

    /// Whether a program has to see each sample, which excludes bulk.
    #[must_use]
    pub const fn needs_program(&self) -> bool {
        self.drop_in_program.user || self.drop_in_program.kernel
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::attr::resolve;
    use crate::pmu::host::fixtures;
    use crate::units::Tid;

    const RING: u32 = 1 << 19;

    fn resolved(host: &Host, name: &str) -> ResolvedEvent {
        let reset = crate::pmu::attr::reset_value(16_000).unwrap();
        resolve(&name.parse().unwrap(), host, reset).unwrap()
    }

    /// Only precise events of Skylake and later are buffered by the hardware.
    #[test]
    fn who_is_buffered() {
        for host in [fixtures::skylake(), fixtures::ice_lake()] {
            assert!(resolved(&host, "cpu/event=0xc2,umask=1/pp").is_buffered(&host));
            assert!(!resolved(&host, "cpu/event=0xc2,umask=1/").is_buffered(&host));
            assert!(!resolved(&host, "cpu-clock").is_buffered(&host));
        }
        let zen = fixtures::zen4();
        assert!(!resolved(&zen, "ibs_op/cnt_ctl=1/").is_buffered(&zen));
        let mut haswell = fixtures::skylake();
        haswell.cpu.model = 0x3f;
        let event = resolved(&haswell, "cpu/event=0xc2,umask=1/pp");
        assert!(!event.is_buffered(&haswell), "its records have no time");
    }

    /// The opened settings keep the buffer for every target; each setting that disables it is found.
    #[test]
    fn settings_that_lose_the_buffer() {
        let host = fixtures::skylake();
        let event = resolved(&host, "cpu/event=0xc2,umask=1/pp");
        for target in [Target::Cpu(Cpu(0)), Target::ThreadOnCpu(Tid(1), Cpu(0))] {
            let attr = event.bulk_attr(target, RING);
            assert_eq!(check_buffered(&attr), Ok(()));
        }
        let spoilt = |spoil: &dyn Fn(&mut perf_event_attr)| {
            let mut attr = event.bulk_attr(Target::Cpu(Cpu(0)), RING);
            spoil(&mut attr);
            check_buffered(&attr)
        };
        let field = |field: u32| spoilt(&|attr| attr.sample_type |= u64::from(field));
        assert_eq!(
            spoilt(&|a| a.set_precise_ip(0)),
            Err(NotBuffered::NotPrecise)
        );
        assert_eq!(spoilt(&|a| a.set_freq(1)), Err(NotBuffered::Frequency));
        assert_eq!(spoilt(&|a| a.set_watermark(0)), Err(NotBuffered::WakeUp));
        assert_eq!(spoilt(&|a| a.set_use_clockid(1)), Err(NotBuffered::Clock));
        assert_eq!(
            field(sys::PERF_SAMPLE_REGS_USER),
            Err(NotBuffered::UserRegisters)
        );
        for other in [
            sys::PERF_SAMPLE_CALLCHAIN,
            sys::PERF_SAMPLE_RAW,
            sys::PERF_SAMPLE_READ,
        ] {
            assert_eq!(field(other), Err(NotBuffered::Fields(other.into())));
        }
        for fits in [
            sys::PERF_SAMPLE_ADDR,
            sys::PERF_SAMPLE_DATA_SRC,
            sys::PERF_SAMPLE_WEIGHT,
        ] {
            assert_eq!(field(fits), Ok(()));
        }
        // The bpf transport takes an interrupt for each record, as it must.
        let one = event.attr_for(Target::Cpu(Cpu(0)));
        assert_eq!(check_buffered(&one), Err(NotBuffered::WakeUp));
    }
}

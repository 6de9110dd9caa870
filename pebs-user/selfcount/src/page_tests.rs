//! The reader against pages made by hand, as the kernel makes them.

use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

const ALLOWED: u64 = CAP_BITS_ARE_VALID | CAP_USER_RDPMC;

/// A page of a counter of 48 bits with index 1, without time.
fn page() -> UserPage {
    let page = UserPage::default();
    page.capabilities.store(ALLOWED, Ordering::Relaxed);
    page.index.store(1, Ordering::Relaxed);
    page.pmc_width.store(48, Ordering::Relaxed);
    page
}

/// No page without leave to read the time stamp counter has it read.
fn no_tsc() -> u64 {
    panic!("cap_user_time is clear")
}

/// An event on a counter of `width` bits, as arch/x86/events/core.c programs it: the register starts at `-left` and
/// overflows after `left` events; `prev_count` is `-left` with all its bits.
struct Programmed {
    width: u16,
    count: u64,
    left: u64,
}

impl Programmed {
    /// Fills the page as `perf_event_update_userpage` does.
    fn fill(&self, page: &UserPage) {
        let prev = self.left.wrapping_neg();
        let offset = self.count.wrapping_sub(prev).cast_signed();
        page.pmc_width.store(self.width, Ordering::Relaxed);
        page.offset.store(offset, Ordering::Relaxed);
    }

    /// The register after that many events.
    fn register(&self, events: u64) -> u64 {
        let mask = u64::MAX >> (64 - self.width);
        self.left.wrapping_neg().wrapping_add(events) & mask
    }
}

proptest! {
    /// Counters of any width, below their overflow and beyond it until the interrupt is taken.
    #[test]
    fn counters_wrap(
        width in prop::sample::select(vec![32_u16, 40, 48, 64]),
        count: u64,
        left: u64,
        events: u64,
    ) {
        let half = 1_u64 << (width - 1);
        let programmed = Programmed { width, count, left: 1 + left % (half - 1) };
        let events = events % (programmed.left + half - 1);
        let page = page();
        programmed.fill(&page);
        let found = page.read(|index| {
            assert_eq!(index, 0);
            programmed.register(events)
        }, no_tsc);
        prop_assert_eq!(found.unwrap().value, count.wrapping_add(events));
    }

    /// The time since the page's last change: `cycles * mult >> shift` in integers as long as it takes.
    #[test]
    fn time_from_the_stamp_counter(
        mult in 1_u32..,
        shift in 1_u16..=32,
        cycles in 0_u64..1 << 60,
        ahead in 0_u64..1 << 40,
    ) {
        let ns = |cycles: u64| ((u128::from(cycles) * u128::from(mult)) >> shift) as u64;
        let page = page();
        page.capabilities.store(ALLOWED | CAP_USER_TIME, Ordering::Relaxed);
        page.time_mult.store(mult, Ordering::Relaxed);
        page.time_shift.store(shift, Ordering::Relaxed);
        page.time_offset.store(ns(cycles).wrapping_neg(), Ordering::Relaxed);
        page.time_enabled.store(5_000, Ordering::Relaxed);
        page.time_running.store(2_000, Ordering::Relaxed);
        let found = page.read(|_| 0, || cycles + ahead).unwrap();
        let since = ns(cycles + ahead).wrapping_sub(ns(cycles));
        prop_assert_eq!(found.enabled_ns, since.wrapping_add(5_000));
        prop_assert_eq!(found.running_ns, since.wrapping_add(2_000));
    }
}

/// 300 events in 2 of 6 ms; 1 ms of the page's age counts to both times. 2 cycles a ns.
#[test]
fn turns_are_scaled() {
    let page = page();
    page.capabilities
        .store(ALLOWED | CAP_USER_TIME, Ordering::Relaxed);
    page.time_mult.store(1 << 9, Ordering::Relaxed);
    page.time_shift.store(10, Ordering::Relaxed);
    page.time_offset
        .store(10_000_000_u64.wrapping_neg(), Ordering::Relaxed);
    page.time_enabled.store(5_000_000, Ordering::Relaxed);
    page.time_running.store(1_000_000, Ordering::Relaxed);
    page.offset.store(100, Ordering::Relaxed);
    let found = page.read(|_| 200, || 22_000_000).unwrap();
    assert_eq!((found.enabled_ns, found.running_ns), (6_000_000, 2_000_000));
    assert_eq!(found.scaled(), Some(900.0));
    assert!(!found.is_exact());
}

/// A time stamp counter of 32 bits that wrapped since the page's last change.
#[test]
fn short_stamp_counters_wrap() {
    let page = page();
    page.capabilities.store(
        ALLOWED | CAP_USER_TIME | CAP_USER_TIME_SHORT,
        Ordering::Relaxed,
    );
    let base = (7_u64 << 32) + 0xffff_ff00;
    page.time_cycles.store(base, Ordering::Relaxed);
    page.time_mask.store(u64::from(u32::MAX), Ordering::Relaxed);
    page.time_mult.store(1, Ordering::Relaxed);
    page.time_offset
        .store(base.wrapping_neg(), Ordering::Relaxed);
    let found = page.read(|_| 0, || 0x100).unwrap();
    assert_eq!(found.enabled_ns, 0x200);
}

/// Without the time an event that never lost a turn is exact, and one that did is unknown.
#[test]
fn without_time() {
    let page = page();
    for (enabled, running, expected) in [
        (0, 0, Ok(Some(40.0))),
        (900, 900, Ok(Some(40.0))),
        (900, 899, Err(Unreadable::NoTime)),
    ] {
        page.time_enabled.store(enabled, Ordering::Relaxed);
        page.time_running.store(running, Ordering::Relaxed);
        let found = page.read(|_| 40, no_tsc);
        assert_eq!(found.map(|count| count.scaled()), expected);
    }
}

/// If the page allows no read, `rdpmc` is not executed: it would fault.
#[test]
fn refusals() {
    let never = |_| panic!("no counter may be read");
    let page = page();
    for capabilities in [
        0,
        1,
        CAP_USER_RDPMC,
        CAP_BITS_ARE_VALID,
        CAP_USER_TIME | CAP_BITS_ARE_VALID,
    ] {
        page.capabilities.store(capabilities, Ordering::Relaxed);
        assert_eq!(page.read(never, no_tsc), Err(Unreadable::NotAllowed));
    }
    page.capabilities.store(ALLOWED, Ordering::Relaxed);
    page.index.store(0, Ordering::Relaxed);
    assert_eq!(page.read(never, no_tsc), Err(Unreadable::NoCounter));
    page.index.store(1, Ordering::Relaxed);
    for width in [0, 65, u16::MAX] {
        page.pmc_width.store(width, Ordering::Relaxed);
        assert_eq!(page.read(never, no_tsc), Err(Unreadable::Width));
    }
}

/// A change in the middle of a read has it read again; one that never ends is given up.
#[test]
fn changes_are_seen() {
    let page = page();
    let reads = Cell::new(0);
    let pmc = |index: u32| {
        reads.set(reads.get() + 1);
        if reads.get() == 1 {
            // An interrupt that moves the event to another counter.
            page.lock.fetch_add(1, Ordering::Relaxed);
            page.index.store(4, Ordering::Relaxed);
            page.offset.store(1_000, Ordering::Relaxed);
            page.lock.fetch_add(1, Ordering::Relaxed);
        }
        u64::from(index)
    };
    assert_eq!(page.read(pmc, no_tsc).unwrap().value, 1_003);
    assert_eq!(reads.get(), 2);

    page.lock.fetch_add(1, Ordering::Relaxed);
    assert_eq!(
        page.read(|_| 0, no_tsc),
        Err(Unreadable::Busy),
        "odd: in the middle of a change"
    );
    page.lock.fetch_add(1, Ordering::Relaxed);
    let always = |_| {
        page.lock.fetch_add(2, Ordering::Relaxed);
        0
    };
    assert_eq!(page.read(always, no_tsc), Err(Unreadable::Busy));
}

/// Count of the n-th state of the writer in [`a_writer_meanwhile`], divided by n; its times are n.
const EVENTS_A_STATE: u64 = 1_000;

/// A thread that moves the event between four counters all the time: no read is half of one state and half of another.
#[test]
fn a_writer_meanwhile() {
    let page = page();
    let registers: [AtomicU64; 4] = Default::default();
    let is_over = AtomicBool::new(false);
    let write = |n: u64| {
        let index = n % 4;
        let register = n.wrapping_mul(0x9e37_79b9) & 0xffff_ffff;
        page.lock.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        page.index.store(index as u32 + 1, Ordering::Relaxed);
        page.time_enabled.store(n, Ordering::Relaxed);
        registers[index as usize].store(register, Ordering::Relaxed);
        let offset = (n * EVENTS_A_STATE).wrapping_sub(register).cast_signed();
        page.offset.store(offset, Ordering::Relaxed);
        page.time_running.store(n, Ordering::Relaxed);
        page.lock.fetch_add(1, Ordering::Release);
    };
    let pmc = |index: u32| registers[index as usize].load(Ordering::Relaxed);
    write(1);
    let (mut reads, mut states, mut last) = (0_u64, 0_u64, 0);
    let (mut torn, mut other) = (None, None);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 2.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                write(n);
                // The kernel leaves time between changes, too.
                for _ in 0..20 {
                    std::hint::spin_loop();
                }
            }
        });
        let begin = Instant::now();
        // A panic in here would leave the writer running.
        while states < 5_000 && torn.is_none() && begin.elapsed() < Duration::from_secs(20) {
            match page.read(pmc, no_tsc) {
                Ok(count) => {
                    let is_whole = count.value == count.enabled_ns * EVENTS_A_STATE
                        && count.running_ns == count.enabled_ns
                        && count.value >= last;
                    torn = (!is_whole).then_some((count, last));
                    states += u64::from(count.value > last);
                    (reads, last) = (reads + 1, count.value);
                }
                Err(Unreadable::Busy) => {}
                Err(why) => other = Some(why),
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!((torn, other), (None, None), "after {reads} reads");
    // On a busy machine the two threads take turns, so that few states are read.
    assert!(states > 20, "{reads} reads of {states} states");
}

//! Samples of a thread, stored by column: most work is done a column at a time.

use crate::stream::sample::{BareSample, RawSample, SampleKind};
use crate::units::{Ip, TraceNs};

/// Borrowed samples. The columns have the same length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Samples<'a> {
    pub times: &'a [TraceNs],
    /// Instruction pointers.
    pub ips: &'a [Ip],
    /// Fields that mostly equal those of neighbouring samples.
    pub kinds: &'a [SampleKind],
}

impl<'a> Samples<'a> {
    /// Number of samples.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.times.len()
    }

    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Returns a sample; `None` behind the end.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<BareSample> {
        Some(BareSample {
            time: *self.times.get(index)?,
            ip: *self.ips.get(index)?,
            kind: *self.kinds.get(index)?,
        })
    }

    /// Iterates over the samples.
    pub fn iter(&self) -> impl Iterator<Item = BareSample> + 'a {
        let rest = self.ips.iter().zip(self.kinds);
        let all = self.times.iter().zip(rest);
        all.map(|(time, (ip, kind))| BareSample {
            time: *time,
            ip: *ip,
            kind: *kind,
        })
    }

    /// Splits after at most `count` samples.
    #[inline]
    #[must_use]
    pub fn split_at(self, count: usize) -> (Self, Self) {
        let count = count.min(self.len());
        let (times, later_times) = self.times.split_at(count);
        let (ips, later_ips) = self.ips.split_at(count);
        let (kinds, later_kinds) = self.kinds.split_at(count);
        let now = Self { times, ips, kinds };
        let later = Self {
            times: later_times,
            ips: later_ips,
            kinds: later_kinds,
        };
        (now, later)
    }

    /// Whether all have the same [`SampleKind`], entries to the kernel aside.
    #[inline]
    #[must_use]
    pub fn are_alike(&self) -> bool {
        !SampleKind::differ_in_row(self.differing())
    }

    /// Whether all were taken on one CPU.
    #[inline]
    #[must_use]
    pub fn are_of_one_cpu(&self) -> bool {
        !SampleKind::differ_in_cpu(self.differing())
    }

    /// Bits in which any sample differs from the first.
    #[inline(always)]
    fn differing(&self) -> u64 {
        let first = self.kinds.first().copied().unwrap_or_default();
        // Nearly always none differs: without early exit several are compared at once.
        let differs = |bits, kind: &SampleKind| bits | kind.differs(first);
        self.kinds.iter().fold(0, differs)
    }
}

/// Checks that times rise.
#[derive(Clone, Copy, Debug)]
pub struct Rising {
    /// Last time seen.
    pub last: TraceNs,
    /// Whether no time was earlier than the one before it.
    pub so_far: bool,
}

impl Rising {
    /// Checks the next time, and returns it.
    #[inline(always)]
    pub fn see(&mut self, time: TraceNs) -> TraceNs {
        self.so_far &= time >= self.last;
        self.last = time;
        time
    }
}

/// Samples of a thread in their original form, read a column at a time. Each column has [`SampleSource::len`]
/// values.
pub trait SampleSource {
    /// Number of samples.
    fn len(&self) -> usize;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Times on the trace clock.
    fn times(&self) -> impl Iterator<Item = TraceNs>;
    /// Instruction pointers.
    fn ips(&self) -> impl Iterator<Item = Ip>;
    /// [`RawSample::sp`] of each.
    fn sps(&self) -> impl Iterator<Item = u64>;
    /// Fields that mostly equal those of neighbouring samples.
    fn kinds(&self) -> impl Iterator<Item = SampleKind>;

    /// Writes times, checked by `rising`, and instruction pointers.
    #[inline(always)]
    fn fill(&self, rising: &mut Rising, times: &mut [TraceNs], ips: &mut [Ip]) {
        fill(times, self.times().map(|time| rising.see(time)));
        fill(ips, self.ips());
    }

    /// Iterates over the samples.
    fn iter(&self) -> impl Iterator<Item = RawSample> {
        let places = self.ips().zip(self.sps());
        let all = self.times().zip(places).zip(self.kinds());
        all.map(|((time, (ip, sp)), kind)| RawSample { time, ip, sp, kind })
    }
}

impl SampleSource for [RawSample] {
    fn len(&self) -> usize {
        self.len()
    }

    fn times(&self) -> impl Iterator<Item = TraceNs> {
        self.iter().map(|sample| sample.time)
    }

    fn ips(&self) -> impl Iterator<Item = Ip> {
        self.iter().map(|sample| sample.ip)
    }

    fn sps(&self) -> impl Iterator<Item = u64> {
        self.iter().map(|sample| sample.sp)
    }

    fn kinds(&self) -> impl Iterator<Item = SampleKind> {
        self.iter().map(|sample| sample.kind)
    }
}

/// Samples with their stack pointers, as in a thread's lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawSamples<'a> {
    pub samples: Samples<'a>,
    /// [`RawSample::sp`] of each.
    pub sps: &'a [u64],
}

impl RawSamples<'_> {
    /// Splits after at most `count` samples.
    #[inline]
    #[must_use]
    pub fn split_at(self, count: usize) -> (Self, Self) {
        let (samples, later) = self.samples.split_at(count);
        let (sps, later_sps) = self.sps.split_at(count.min(self.sps.len()));
        let later = Self {
            samples: later,
            sps: later_sps,
        };
        (Self { samples, sps }, later)
    }
}

/// Owned samples. The columns never shrink by themselves: the first `len` values are in use.
#[derive(Clone, Debug, Default)]
pub struct SampleBuf {
    times: Vec<TraceNs>,
    ips: Vec<Ip>,
    kinds: Vec<SampleKind>,
    len: usize,
}

/// Smallest capacity of a buffer, samples.
const ROOM: usize = 64;

impl SampleBuf {
    /// Bytes per sample.
    pub const BYTES: usize = size_of::<TraceNs>() + size_of::<Ip>() + size_of::<SampleKind>();

    /// Number of samples.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns all samples.
    #[inline]
    #[must_use]
    pub fn samples(&self) -> Samples<'_> {
        Samples {
            times: &self.times[..self.len],
            ips: &self.ips[..self.len],
            kinds: &self.kinds[..self.len],
        }
    }

    /// Appends samples.
    #[inline]
    pub fn extend(&mut self, samples: Samples<'_>) {
        let (times, ips, kinds) = self.grow(samples.len());
        times.copy_from_slice(samples.times);
        ips.copy_from_slice(samples.ips);
        kinds.copy_from_slice(samples.kinds);
    }

    /// Appends `count` samples whose values the caller fills in.
    #[inline(always)]
    fn grow(&mut self, count: usize) -> (&mut [TraceNs], &mut [Ip], &mut [SampleKind]) {
        let (begin, end) = (self.len, self.len + count);
        if end > self.times.len() {
            self.make_room(end);
        }
        self.len = end;
        let times = &mut self.times[begin..end];
        (
            times,
            &mut self.ips[begin..end],
            &mut self.kinds[begin..end],
        )
    }

    #[cold]
    fn make_room(&mut self, samples: usize) {
        let room = samples.max(2 * self.times.len()).next_multiple_of(ROOM);
        self.resize(room);
    }

    fn resize(&mut self, room: usize) {
        self.times.resize(room, TraceNs(0));
        self.ips.resize(room, Ip(0));
        self.kinds.resize(room, SampleKind::default());
    }

    /// Removes all samples, keeps the allocation.
    #[inline]
    pub const fn clear(&mut self) {
        self.len = 0;
    }
}

impl FromIterator<BareSample> for SampleBuf {
    fn from_iter<T: IntoIterator<Item = BareSample>>(samples: T) -> Self {
        let mut buf = Self::default();
        for BareSample { time, ip, kind } in samples {
            buf.extend(Samples {
                times: &[time],
                ips: &[ip],
                kinds: &[kind],
            });
        }
        buf
    }
}

/// Samples with their stack pointers; the first ones are removed again and again.
#[derive(Debug, Default)]
pub(super) struct RawSampleBuf {
    buf: SampleBuf,
    sps: Vec<u64>,
}

impl RawSampleBuf {
    /// Number of samples.
    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.buf.len
    }

    #[inline]
    pub(super) fn times(&self) -> &[TraceNs] {
        &self.buf.times[..self.buf.len]
    }

    /// Returns the samples in `begin..end`.
    #[inline]
    pub(super) fn range(&self, begin: usize, end: usize) -> RawSamples<'_> {
        let samples = Samples {
            times: &self.buf.times[begin..end],
            ips: &self.buf.ips[begin..end],
            kinds: &self.buf.kinds[begin..end],
        };
        RawSamples {
            samples,
            sps: &self.sps[begin..end],
        }
    }

    /// Appends samples, whose times are checked by `rising`.
    #[inline(always)]
    pub(super) fn extend(&mut self, samples: &(impl SampleSource + ?Sized), rising: &mut Rising) {
        let (begin, count) = (self.buf.len, samples.len());
        let end = begin + count;
        if end > self.sps.len() {
            self.make_room(end);
        }
        let sps = &mut self.sps[begin..end];
        let (times, ips, kinds) = self.buf.grow(count);
        let mut seen = *rising;
        samples.fill(&mut seen, times, ips);
        *rising = seen;
        fill(sps, samples.sps());
        fill(kinds, samples.kinds());
    }

    #[cold]
    fn make_room(&mut self, samples: usize) {
        self.buf.make_room(samples);
        self.sps.resize(self.buf.times.len(), 0);
    }

    /// Sorts the samples from `begin` on by time, stably.
    pub(super) fn sort(&mut self, begin: usize) {
        let RawSamples { samples, sps } = self.range(begin, self.len());
        let raw = samples.iter().zip(sps).map(|(sample, sp)| RawSample {
            time: sample.time,
            ip: sample.ip,
            sp: *sp,
            kind: sample.kind,
        });
        let mut raw: Vec<RawSample> = raw.collect();
        raw.sort_by_key(|sample| sample.time);
        self.buf.len = begin;
        let mut rising = Rising {
            last: TraceNs(i64::MIN),
            so_far: true,
        };
        self.extend(raw.as_slice(), &mut rising);
    }

    /// Removes the first `count` samples.
    pub(super) fn forget(&mut self, count: usize) {
        let SampleBuf {
            times,
            ips,
            kinds,
            len,
        } = &mut self.buf;
        times.copy_within(count..*len, 0);
        ips.copy_within(count..*len, 0);
        kinds.copy_within(count..*len, 0);
        self.sps.copy_within(count..*len, 0);
        *len -= count;
    }

    /// Capacity, samples.
    pub(super) const fn room(&self) -> usize {
        self.buf.times.len()
    }

    /// Reduces the capacity to `room`, but not below the length.
    pub(super) fn shrink(&mut self, room: usize) {
        let room = room.max(self.len());
        self.buf.resize(room);
        self.buf.times.shrink_to_fit();
        self.buf.ips.shrink_to_fit();
        self.buf.kinds.shrink_to_fit();
        self.sps.resize(room, 0);
        self.sps.shrink_to_fit();
    }
}

/// Fills a column with values.
#[inline(always)]
pub(crate) fn fill<T>(column: &mut [T], values: impl Iterator<Item = T>) {
    column
        .iter_mut()
        .zip(values)
        .for_each(|(to, value)| *to = value);
}

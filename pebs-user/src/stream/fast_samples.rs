//! Fast path for samples that follow one another and differ only in ip, time and mode: nearly all of them.
//!
//! If samples consist of one-word fields, every field has a fixed position, and a run of samples of the same thread is
//! read without looking at the layout again. The same holds for a tracepoint's samples, whose raw data follows these
//! words; they are read one by one.

use std::iter;

use perf_event_open_sys::bindings as sys;

use crate::perf::layout::Layout;
use crate::perf::record::RawRecord;
use crate::stream::sample::SampleKind;
use crate::stream::samples::{Rising, SampleSource, fill};
use crate::units::{Cpu, EventId, Ip, TraceNs};

/// One-word fields that don't describe an access.
const WORDS: u64 = (sys::PERF_SAMPLE_IDENTIFIER
    | sys::PERF_SAMPLE_IP
    | sys::PERF_SAMPLE_TID
    | sys::PERF_SAMPLE_TIME
    | sys::PERF_SAMPLE_ID
    | sys::PERF_SAMPLE_STREAM_ID
    | sys::PERF_SAMPLE_CPU
    | sys::PERF_SAMPLE_PERIOD) as u64;

/// Fields that may follow the time, in this order.
const BEHIND: [u32; 4] = [
    sys::PERF_SAMPLE_ID,
    sys::PERF_SAMPLE_STREAM_ID,
    sys::PERF_SAMPLE_CPU,
    sys::PERF_SAMPLE_PERIOD,
];

/// Positions of the fields in samples of one size, in words from the begin of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// Words of a record with its header, without raw data.
    words: u8,
    ip: u8,
    tid: u8,
    time: u8,
    /// Event number, in the field ID or IDENTIFIER.
    id: Option<u8>,
    cpu: Option<u8>,
    period: Option<u8>,
    /// Whether raw data follows these words.
    raw: bool,
}

/// A run of samples that are alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    pub first: RawRecord<'a>,
    pub pid_tid: (u32, u32),
    /// Bytes of all samples.
    pub bytes: &'a [u8],
    count: usize,
    places: Places,
}

/// One sample of a [`Run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alike {
    pub ip: u64,
    pub time: u64,
    /// Whether its address is exact, and whether it was taken in kernel mode.
    pub flags: (bool, bool),
}

type Word = [u8; 8];

impl Places {
    /// Returns the positions for samples without access and raw data; `None` for other layouts.
    pub(crate) fn of(layout: &Layout) -> Option<Self> {
        Self::with_raw(layout).filter(|places| !places.raw)
    }

    /// Like [`Places::of`], but raw data of a tracepoint is allowed.
    pub(crate) fn with_raw(layout: &Layout) -> Option<Self> {
        let raw = layout.has(sys::PERF_SAMPLE_RAW);
        let asked = layout.sample_type & !u64::from(sys::PERF_SAMPLE_RAW);
        let wanted = [
            sys::PERF_SAMPLE_IP,
            sys::PERF_SAMPLE_TID,
            sys::PERF_SAMPLE_TIME,
        ];
        if asked & !WORDS != 0 || !wanted.iter().all(|field| layout.has(*field)) {
            return None;
        }
        // Header, IDENTIFIER, IP, TID, TIME, then the others.
        let ip = 1 + u8::from(layout.has(sys::PERF_SAMPLE_IDENTIFIER));
        let behind = |field: u32| {
            let mut asked = BEHIND.iter().filter(|field| layout.has(**field));
            asked.position(|it| *it == field).map(|n| ip + 3 + n as u8)
        };
        let identifier = layout.has(sys::PERF_SAMPLE_IDENTIFIER).then_some(1);
        Some(Self {
            words: 1 + asked.count_ones() as u8,
            ip,
            tid: ip + 1,
            time: ip + 2,
            id: identifier.or_else(|| behind(sys::PERF_SAMPLE_ID)),
            cpu: behind(sys::PERF_SAMPLE_CPU),
            period: behind(sys::PERF_SAMPLE_PERIOD),
            raw,
        })
    }

    /// Returns the samples at the begin of `bytes`, from the ring of one event on one CPU; `None` if the first record
    /// is no sample.
    #[inline(always)]
    pub(crate) fn run<'a>(self, bytes: &'a [u8]) -> Option<Run<'a>> {
        self.run_of(bytes, |_, _| true)
    }

    /// Like [`Places::run`] for samples of several events and CPUs: the run has the first one's event and CPU, and all
    /// its samples have a time.
    #[inline(always)]
    pub(crate) fn run_of_event<'a>(self, bytes: &'a [u8]) -> Option<Run<'a>> {
        // If a field is missing, the thread is compared instead.
        let [id, cpu] = [self.id, self.cpu].map(|at| usize::from(at.unwrap_or(self.tid)));
        let time = usize::from(self.time);
        self.run_of(bytes, |record, first| {
            (record[id] == first[id]) & (record[cpu] == first[cpu]) & (record[time] != [0; 8])
        })
    }

    #[inline(always)]
    fn run_of<'a>(
        self,
        bytes: &'a [u8],
        fits: impl Fn(&[Word], &[Word]) -> bool,
    ) -> Option<Run<'a>> {
        let (first, _) = RawRecord::split(bytes)?;
        let (size, tid) = (usize::from(self.words), usize::from(self.tid));
        if first.kind != sys::PERF_RECORD_SAMPLE {
            return None;
        }
        let (words, _) = bytes.as_chunks::<8>();
        let len = 8 + first.body.len();
        if self.raw {
            let is_whole = raw(bytes.get(size * 8..len)?).is_some() && fits(words, words);
            return is_whole.then(|| self.some(first, &bytes[..len], 1));
        }
        if len != size * 8 {
            return None;
        }
        let (header, thread) = (u64::from_ne_bytes(words[0]), words[tid]);
        let of_note = !misc_word(variable(first));
        let (mut rest, mut count) = (words, 0);
        while let Some((record, behind)) = rest.split_at_checked(size)
            && (u64::from_ne_bytes(record[0]) ^ header) & of_note == 0
            && record[tid] == thread
            && fits(record, words)
        {
            rest = behind;
            count += 1;
        }
        (count > 0).then(|| self.some(first, &bytes[..count * size * 8], count))
    }

    #[inline(always)]
    fn some<'a>(self, first: RawRecord<'a>, bytes: &'a [u8], count: usize) -> Run<'a> {
        let (words, _) = bytes.as_chunks::<8>();
        let [a, b, c, d, e, f, g, h] = words[usize::from(self.tid)];
        Run {
            first,
            pid_tid: (
                u32::from_ne_bytes([a, b, c, d]),
                u32::from_ne_bytes([e, f, g, h]),
            ),
            bytes,
            count,
            places: self,
        }
    }
}

/// Header bits that may differ within a run. A guest's samples are not mixed with others.
const fn variable(first: RawRecord<'_>) -> u16 {
    const GUEST: u32 = sys::PERF_RECORD_MISC_GUEST_KERNEL & sys::PERF_RECORD_MISC_GUEST_USER;
    if first.has(GUEST) {
        return 0;
    }
    (sys::PERF_RECORD_MISC_CPUMODE_MASK & !GUEST | sys::PERF_RECORD_MISC_EXACT_IP) as u16
}

/// Returns a header with nothing but these misc bits.
const fn misc_word(misc: u16) -> u64 {
    let [a, b] = misc.to_ne_bytes();
    u64::from_ne_bytes([0, 0, 0, 0, a, b, 0, 0])
}

/// Returns the raw data, if `bytes` hold nothing else.
#[inline(always)]
fn raw(bytes: &[u8]) -> Option<&[u8]> {
    let (len, rest) = bytes.split_first_chunk()?;
    (u32::from_ne_bytes(*len) as usize == rest.len()).then_some(rest)
}

impl Run<'_> {
    /// Number of samples.
    #[inline(always)]
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    /// CPU of all samples, if recorded.
    #[inline(always)]
    pub(crate) fn cpu(&self) -> Option<u32> {
        let (all, _) = self.bytes.as_chunks::<8>();
        let [a, b, c, d, ..] = all[usize::from(self.places.cpu?)];
        Some(u32::from_ne_bytes([a, b, c, d]))
    }

    /// Returns the samples.
    #[inline(always)]
    pub(crate) fn samples(&self) -> impl ExactSizeIterator<Item = Alike> {
        let (all, _) = self.bytes.as_chunks::<8>();
        let (first, places) = (self.first, self.places);
        let records = all.chunks_exact(usize::from(places.words));
        // A run with raw data has one sample.
        records.take(self.count).map(move |record| {
            let word = |place: u8| record[usize::from(place)];
            let [.., a, b, _, _] = word(0);
            let misc = u16::from_ne_bytes([a, b]);
            Alike {
                ip: u64::from_ne_bytes(word(places.ip)),
                time: u64::from_ne_bytes(word(places.time)),
                flags: RawRecord { misc, ..first }.flags(),
            }
        })
    }

    /// Number of samples with an exact address.
    #[inline(always)]
    pub(crate) fn exact(&self) -> u64 {
        let exact = misc_word(sys::PERF_RECORD_MISC_EXACT_IP as u16);
        let is_exact = |header: u64| u64::from(header & exact != 0);
        self.words(0).map(is_exact).sum()
    }

    /// Returns the time of each.
    #[inline(always)]
    pub(crate) fn times(&self) -> impl Iterator<Item = u64> {
        self.words(self.places.time)
    }

    /// Returns them as samples of an event on a CPU. `time` converts a record's time to the trace clock.
    #[inline(always)]
    pub(crate) fn source<F: Fn(u64) -> TraceNs>(
        &self,
        of: (Cpu, EventId),
        time: F,
    ) -> impl SampleSource {
        Source {
            run: *self,
            of,
            time,
        }
    }

    /// Raw data of the only sample, if it has any.
    #[inline(always)]
    pub(crate) fn raw(&self) -> Option<&[u8]> {
        let places = self.places;
        let behind = places
            .raw
            .then(|| &self.bytes[usize::from(places.words) * 8..]);
        behind.and_then(raw)
    }

    /// Returns the period of each, if recorded.
    #[inline(always)]
    pub(crate) fn periods(&self) -> impl Iterator<Item = u64> {
        let place = self.places.period.into_iter();
        place.flat_map(|at| self.words(at))
    }

    #[inline(always)]
    fn words(&self, place: u8) -> impl ExactSizeIterator<Item = u64> {
        let (all, _) = self.bytes.as_chunks::<8>();
        let (size, place) = (usize::from(self.places.words), usize::from(place));
        (0..self.count).map(move |n| u64::from_ne_bytes(all[n * size + place]))
    }
}

/// Adapter from a [`Run`] to a lane.
struct Source<'a, F> {
    run: Run<'a>,
    of: (Cpu, EventId),
    time: F,
}

impl<F: Fn(u64) -> TraceNs> Source<'_, F> {
    /// [`SampleSource::fill`] for records of `WORDS` words.
    #[inline(always)]
    fn fill_of<const WORDS: usize>(
        &self,
        rising: &mut Rising,
        times: &mut [TraceNs],
        ips: &mut [Ip],
    ) {
        let Run { bytes, places, .. } = self.run;
        let (records, _) = bytes.as_chunks::<8>().0.as_chunks::<WORDS>();
        let word = |record: &[Word; WORDS], place: u8| {
            u64::from_ne_bytes(record[usize::from(place) % WORDS])
        };
        for (record, (time, ip)) in records.iter().zip(times.iter_mut().zip(ips)) {
            *time = rising.see((self.time)(word(record, places.time)));
            *ip = Ip(word(record, places.ip));
        }
    }
}

impl<F: Fn(u64) -> TraceNs> SampleSource for Source<'_, F> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.run.count
    }

    #[inline(always)]
    fn times(&self) -> impl Iterator<Item = TraceNs> {
        self.run.times().map(&self.time)
    }

    #[inline(always)]
    fn ips(&self) -> impl Iterator<Item = Ip> {
        self.run.words(self.run.places.ip).map(Ip)
    }

    /// Not in the records, so a frame that is gone is found only at the next mark.
    #[inline(always)]
    fn sps(&self) -> impl Iterator<Item = u64> {
        iter::repeat_n(0, self.run.count)
    }

    /// The usual sizes are constants, so that positions are computed at compile time.
    #[inline(always)]
    fn fill(&self, rising: &mut Rising, times: &mut [TraceNs], ips: &mut [Ip]) {
        match self.run.places.words {
            4 => self.fill_of::<4>(rising, times, ips),
            5 => self.fill_of::<5>(rising, times, ips),
            6 => self.fill_of::<6>(rising, times, ips),
            7 => self.fill_of::<7>(rising, times, ips),
            _ => {
                fill(times, self.times().map(|time| rising.see(time)));
                fill(ips, self.ips());
            }
        }
    }

    #[inline(always)]
    fn kinds(&self) -> impl Iterator<Item = SampleKind> {
        let ((cpu, event), first) = (self.of, self.run.first);
        self.run.words(0).map(move |header| {
            let [.., a, b, _, _] = header.to_ne_bytes();
            let misc = u16::from_ne_bytes([a, b]);
            SampleKind::new(cpu, event, RawRecord { misc, ..first }.flags())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::Mode;
    use crate::perf::sample::Sample;

    /// Raw data of a tracepoint is found behind the words, complete and nothing else.
    #[test]
    fn raw_behind_words() {
        let asked = sys::PERF_SAMPLE_IP
            | sys::PERF_SAMPLE_TID
            | sys::PERF_SAMPLE_TIME
            | sys::PERF_SAMPLE_PERIOD
            | sys::PERF_SAMPLE_RAW;
        let layout = Layout {
            sample_type: asked.into(),
            ..Layout::default()
        };
        let record = |len: u32, raw: &[u8]| {
            let size = 8 + 4 * 8 + 4 + raw.len() as u16;
            let mut bytes = sys::PERF_RECORD_SAMPLE.to_ne_bytes().to_vec();
            bytes.extend([0; 2].into_iter().chain(size.to_ne_bytes()));
            bytes.extend([1, 2, 3, 4].iter().copied().flat_map(u64::to_ne_bytes));
            bytes.extend(len.to_ne_bytes());
            bytes.extend(raw);
            bytes
        };
        assert_eq!(Places::of(&layout), None);
        let places = Places::with_raw(&layout).unwrap();
        let twice = [record(4, b"this"), record(4, b"that")].concat();
        let run = places.run_of_event(&twice).unwrap();
        assert_eq!((run.len(), run.bytes.len()), (1, twice.len() / 2));
        assert_eq!((run.pid_tid, run.raw()), ((2, 0), Some(&b"this"[..])));
        let expected = Alike {
            ip: 1,
            time: 3,
            flags: (false, false),
        };
        assert!(run.samples().eq([expected]) && run.periods().eq([4]));
        for odd in [
            record(3, b"this"),
            record(5, b"this"),
            record(u32::MAX, b""),
            vec![9; 3],
        ] {
            assert!(places.run_of_event(&odd).is_none());
        }
        assert!(places.run_of_event(&twice[..40]).is_none());
    }

    proptest::proptest! {
        /// A run equals its samples read one by one, whatever fields they have, and is of one event, CPU and thread,
        /// and of a guest or not.
        #[test]
        fn as_one_by_one(
            fields in proptest::sample::subsequence(
                vec![
                    sys::PERF_SAMPLE_IDENTIFIER,
                    sys::PERF_SAMPLE_ID,
                    sys::PERF_SAMPLE_STREAM_ID,
                    sys::PERF_SAMPLE_CPU,
                    sys::PERF_SAMPLE_PERIOD,
                ],
                0..=5,
            ),
            words in proptest::collection::vec(proptest::bool::weighted(0.03), 8..800),
            modes in proptest::collection::vec(0_u32..6, 8),
        ) {
            let needed = sys::PERF_SAMPLE_IP | sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME;
            let asked = fields.iter().fold(needed, |all, field| all | field);
            let layout = Layout {
                sample_type: asked.into(),
                ..Layout::default()
            };
            let size = 1 + asked.count_ones() as usize;
            let mut bytes = Vec::new();
            for (n, record) in words.chunks_exact(size - 1).enumerate() {
                bytes.extend(sys::PERF_RECORD_SAMPLE.to_ne_bytes());
                // Long runs of a few modes.
                let exact = (n as u32 / 3 % 2) * sys::PERF_RECORD_MISC_EXACT_IP;
                let misc = modes[n / 5 % 8] | exact;
                bytes.extend((misc as u16).to_ne_bytes());
                bytes.extend((size as u16 * 8).to_ne_bytes());
                // Words that differ now and then; a time of 0 sometimes.
                let word = |(n, other): (usize, &bool)| 3 + n as u64 - u64::from(*other) * 3;
                bytes.extend(record.iter().enumerate().map(word).flat_map(u64::to_ne_bytes));
            }
            let places = Places::of(&layout).unwrap();
            let (mut rest, mut count) = (&bytes[..], 0);
            while let Some((raw, after)) = RawRecord::split(rest) {
                let first = Sample::decode(&layout, raw.body).unwrap();
                let Some(run) = places.run_of_event(rest) else {
                    proptest::prop_assert_eq!(first.time, Some(0));
                    rest = after;
                    count += 1;
                    continue;
                };
                let samples = run.bytes.chunks_exact(size * 8);
                let samples = samples.map(|bytes| Sample::decode(&layout, &bytes[8..]).unwrap());
                let samples: Vec<_> = samples.collect();
                proptest::prop_assert_eq!(run.len(), samples.len());
                let raws = run.bytes.chunks_exact(size * 8);
                let raws: Vec<_> = raws.map(|bytes| RawRecord::split(bytes).unwrap().0).collect();
                let expected = samples.iter().zip(&raws).map(|(it, raw)| Alike {
                    ip: it.ip.unwrap(),
                    time: it.time.unwrap(),
                    flags: raw.flags(),
                });
                proptest::prop_assert!(run.samples().eq(expected));
                let is_guest = |raw: &RawRecord<'_>| raw.mode() == Mode::Guest;
                proptest::prop_assert!(raws.iter().all(|it| is_guest(it) == is_guest(&raw)));
                proptest::prop_assert!(run.periods().eq(samples.iter().filter_map(|it| it.period)));
                for sample in &samples {
                    proptest::prop_assert_eq!(sample.pid_tid, Some(run.pid_tid));
                    proptest::prop_assert_eq!((sample.cpu, sample.id), (run.cpu(), first.id));
                    proptest::prop_assert!(sample.time != Some(0));
                }
                rest = &rest[run.bytes.len()..];
                count += run.len();
            }
            proptest::prop_assert_eq!(count, words.len() / (size - 1));
        }
    }
}

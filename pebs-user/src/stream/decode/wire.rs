//! The wire format: the kernel's framing and the words of each record.

use pebs_common::record::{
    ClockPair, Counts, Encounter, Head, Kind, Mark, MarkArgs, REGISTER_WORDS, Sample, SampleAccess,
    SampleStack, SampleUser, StackDepth, Switch, SwitchUser, Task, UserShape, UserState,
};

/// Length of the header that the kernel puts before each ring record.
/// Source: `BPF_RINGBUF_HDR_SZ`, include/uapi/linux/bpf.h.
const RING_HEADER: usize = 8;

/// The program discarded the record. Source: `BPF_RINGBUF_DISCARD_BIT`.
const DISCARDED: u32 = 1 << 30;

/// Iterator over the records of a ring, framed by the kernel: length word, page offset, payload, padding to 8.
pub(super) struct Frames<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Frames<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let header = self.rest.first_chunk::<4>()?;
            let word = u32::from_ne_bytes(*header);
            let length = (word & (DISCARDED - 1)) as usize;
            let frame = self.rest.get(RING_HEADER..RING_HEADER + length)?;
            let next = (RING_HEADER + length).next_multiple_of(8);
            self.rest = self.rest.get(next..).unwrap_or_default();
            if word & DISCARDED == 0 {
                return Some(frame);
            }
        }
    }
}

/// A sample with its frame header, as in a ring.
pub(super) type SampleFrame = [u8; RING_HEADER + size_of::<Sample>()];

/// Length of a sample, as in its frame header.
const SAMPLE: u32 = size_of::<Sample>() as u32;

impl<'a> Frames<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether all bytes were complete records.
    pub(super) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes the next frames if they are samples, as far as they have the same head; `None` if the next frame
    /// is no sample.
    #[inline(always)]
    pub(super) fn samples(&mut self) -> Option<(Head, &'a [SampleFrame])> {
        let (frames, _) = self.rest.as_chunks();
        let first = head_word(frames.first()?);
        let is_like = |frame: &&SampleFrame| {
            // The other half of the header is the kernel's page offset.
            let length = u32::from_ne_bytes([frame[0], frame[1], frame[2], frame[3]]);
            (length == SAMPLE) & (head_word(frame) == first)
        };
        if first as u8 & 0xf != Kind::Sample as u8 {
            return None;
        }
        let count = frames.iter().take_while(is_like).count();
        let (like, _) = frames.split_at(count);
        self.rest = &self.rest[like.as_flattened().len()..];
        (count > 0).then_some((Head(first), like))
    }
}

#[inline(always)]
fn head_word(frame: &SampleFrame) -> u64 {
    let (words, _) = frame.as_chunks();
    u64::from_ne_bytes(words[1])
}

/// Returns time, ip and stack pointer of a sample.
#[inline(always)]
pub(super) fn sample_words(frame: &SampleFrame) -> [u64; 3] {
    let (words, _) = frame.as_chunks();
    [words[2], words[3], words[4]].map(u64::from_ne_bytes)
}

/// Reads a wire struct from the start of a frame; `None` if the frame is shorter.
pub(super) fn read<T: Wire>(frame: &[u8]) -> Option<T> {
    T::from_words(frame)
}

/// A wire struct made of 64-bit words.
pub(super) trait Wire: Sized {
    fn from_words(frame: &[u8]) -> Option<Self>;
}

#[inline(always)]
fn word(frame: &[u8], index: usize) -> Option<u64> {
    let bytes = frame.get(index * 8..index * 8 + 8)?;
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

macro_rules! wire {
    ($name:ident { $($field:ident),* }) => {
        impl Wire for $name {
            #[inline(always)]
            fn from_words(frame: &[u8]) -> Option<Self> {
                let words = frame.first_chunk::<{ size_of::<Self>() }>()?;
                let mut index = 0..;
                Some(Self {
                    head: Head(word(words, index.next()?)?),
                    $($field: word(words, index.next()?)?.into()),*
                })
            }
        }
    };
}

wire!(Sample { time_ns, ip, sp });
wire!(Mark { clock, sp, id });
wire!(Switch { time_ns, ip, state });
wire!(Task { time_ns, other });
wire!(Counts { time_ns, ns });
wire!(ClockPair {
    monotonic_ns,
    perf_ns
});

impl Wire for SampleAccess {
    fn from_words(frame: &[u8]) -> Option<Self> {
        Some(Self {
            sample: Sample::from_words(frame)?,
            addr: word(frame, ACCESS)?,
            weight: word(frame, ACCESS + 1)?,
            data_src: word(frame, ACCESS + 2)?,
        })
    }
}

impl Wire for Encounter {
    fn from_words(frame: &[u8]) -> Option<Self> {
        Some(Self {
            head: Head(word(frame, 0)?),
            time_ns: word(frame, 1)?,
            other: word(frame, 2)?,
            comm: [word(frame, 3)?, word(frame, 4)?],
        })
    }
}

impl Wire for SampleStack {
    fn from_words(frame: &[u8]) -> Option<Self> {
        Some(Self {
            sample: Sample::from_words(frame)?,
            depth: StackDepth(word(frame, 4)?),
        })
    }
}

impl Wire for SampleUser {
    fn from_words(frame: &[u8]) -> Option<Self> {
        Some(Self {
            sample: Sample::from_words(frame)?,
            user: user_state(frame)?,
        })
    }
}

impl Wire for SwitchUser {
    fn from_words(frame: &[u8]) -> Option<Self> {
        Some(Self {
            switch: Switch::from_words(frame)?,
            user: user_state(frame)?,
        })
    }
}

/// The state behind a sample or switch.
fn user_state(frame: &[u8]) -> Option<UserState> {
    let (words, _) = frame.get(USER_STATE..)?.as_chunks::<8>();
    let mut words = words.iter().map(|word| u64::from_ne_bytes(*word));
    let shape = UserShape(words.next()?);
    let mut registers = [0; REGISTER_WORDS];
    for register in &mut registers {
        *register = words.next()?;
    }
    Some(UserState { shape, registers })
}

/// Offset of a [`UserState`], bytes.
const USER_STATE: usize = size_of::<Sample>();

/// Number of words in a [`SampleAccess`] before those of the access.
pub(super) const ACCESS: usize = size_of::<Sample>() / 8;

impl Wire for MarkArgs {
    fn from_words(frame: &[u8]) -> Option<Self> {
        Some(Self {
            mark: Mark::from_words(frame)?,
            valid: word(frame, 4)?,
        })
    }
}

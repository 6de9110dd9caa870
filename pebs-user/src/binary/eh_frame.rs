//! Function boundaries from unwind tables.
//!
//! Stripped binaries keep `.eh_frame`: exceptions and backtraces need it. Each frame description covers one
//! function (or one part of a function that the compiler split).

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, RunTimeEndian, UnwindSection as _};
use rustc_hash::FxHashMap;

/// Maximum number of frame descriptions kept per file: 16 bytes each.
const FRAMES_MAX: usize = 1 << 22;

/// A half-open range of virtual addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    /// First address.
    pub start: u64,
    /// End address.
    pub end: u64,
}

impl Span {
    /// The span that contains an address, among sorted, disjoint spans.
    #[must_use]
    pub(crate) fn find(spans: &[Self], address: u64) -> Option<Self> {
        let behind = spans.partition_point(|span| span.start <= address);
        let span = spans[behind.checked_sub(1)?];
        (address < span.end).then_some(span)
    }
}

/// An `.eh_frame` section.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section<'data> {
    /// Its bytes.
    pub data: &'data [u8],
    /// Its virtual address.
    pub address: u64,
    /// Virtual address of `.text`, for text-relative pointers.
    pub text: u64,
    /// Bytes of an address: 4 or 8.
    pub address_size: u8,
    /// Byte order.
    pub endian: RunTimeEndian,
}

/// The functions covered by frame descriptions, sorted and disjoint.
///
/// Stops at a malformed entry. Cost: about 100 ns per entry.
/// Source: LSB core specification, "DWARF extensions".
#[must_use]
pub(crate) fn function_spans(section: &Section<'_>) -> Vec<Span> {
    let mut eh_frame = EhFrame::from(EndianSlice::new(section.data, section.endian));
    eh_frame.set_address_size(section.address_size);
    let bases = BaseAddresses::default()
        .set_eh_frame(section.address)
        .set_text(section.text);
    let mut cies = FxHashMap::default();
    let mut spans = Vec::new();
    let mut entries = eh_frame.entries(&bases);
    while spans.len() < FRAMES_MAX
        && let Ok(Some(entry)) = entries.next()
    {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let parsed = partial.parse(|section, bases, offset| {
            if let Some(cie) = cies.get(&offset.0) {
                return Ok(Clone::clone(cie));
            }
            let cie = section.cie_from_offset(bases, offset)?;
            cies.insert(offset.0, cie.clone());
            Ok(cie)
        });
        let Ok(frame) = parsed else { continue };
        let start = frame.initial_address();
        // Sections that the linker dropped leave descriptions at 0.
        if let Some(end) = start.checked_add(frame.len())
            && start != 0
            && start < end
        {
            spans.push(Span { start, end });
        }
    }
    disjoint(spans)
}

/// Sorts; of spans that overlap, each ends where the next begins.
#[must_use]
pub(crate) fn disjoint(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    spans.dedup_by_key(|span| span.start);
    for index in 1..spans.len() {
        let next = spans[index].start;
        let span = &mut spans[index - 1];
        span.end = span.end.min(next);
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Overlapping descriptions are cut, so that each address has one function.
    #[test]
    fn overlaps() {
        let span = |start, end| Span { start, end };
        let spans = disjoint(vec![span(20, 40), span(10, 25), span(20, 30), span(50, 60)]);
        assert_eq!(spans, [span(10, 20), span(20, 30), span(50, 60)]);
        assert_eq!(Span::find(&spans, 22), Some(span(20, 30)));
        assert_eq!(Span::find(&spans, 45), None);
        assert_eq!(Span::find(&spans, 5), None);
    }

    proptest::proptest! {
        /// Any bytes are read without a panic.
        #[test]
        fn any_bytes(data in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
            let section = Section {
                data: &data,
                address: 0x1000,
                text: 0x500,
                address_size: 8,
                endian: RunTimeEndian::Little,
            };
            for span in function_spans(&section) {
                proptest::prop_assert!(span.start < span.end);
            }
        }
    }
}

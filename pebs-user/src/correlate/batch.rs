//! Items of a visit that serves several at once, as read by the begin mark.

use pebs_common::config::MAX_BATCH;
use pebs_common::record::batch::{COUNT, COUNT_VALID, IDS, IDS_VALID};

use crate::spec::expr::Type;
use crate::store::schema::visit_flag;

/// Largest plausible number of items of one visit.
const MOST: u64 = i32::MAX as u64;

/// The items that a visit serves together.
#[derive(Debug, Default)]
pub struct Batch {
    /// Number of items; `None` if it could not be read.
    pub items: Option<u32>,
    /// Item ids: at most [`MAX_BATCH`]; empty if they could not be read.
    pub ids: Vec<u64>,
}

impl Batch {
    /// Removes the items, keeps the allocation.
    pub(super) fn clear(&mut self) {
        self.items = None;
        self.ids.clear();
    }

    /// Parses the items from a begin mark's payload; `valid` says which parts could be read. Returns the visit's flags.
    pub(crate) fn read(&mut self, each: Type, valid: u32, payload: &[u8]) -> u32 {
        self.clear();
        let count = payload
            .get(COUNT..IDS)
            .and_then(|word| word.try_into().ok());
        let count = count.filter(|_| valid & COUNT_VALID != 0);
        // A negative count means 0.
        let count = count.map(|word| u64::try_from(i64::from_ne_bytes(word)).unwrap_or(0));
        self.items = count.filter(|n| *n <= MOST).map(|n| n as u32);
        let known = self.items.filter(|_| valid & IDS_VALID != 0).unwrap_or(0);
        let ids = payload.get(IDS..).unwrap_or_default();
        let ids = ids.chunks_exact(usize::from(each.width().max(1)));
        let ids = ids.take(MAX_BATCH.min(known as usize));
        self.ids.extend(ids.map(|bytes| number(each, bytes)));
        if self.items == Some(self.ids.len() as u32) {
            visit_flag::SHARED
        } else {
            visit_flag::SHARED | visit_flag::IDS_MISSING
        }
    }
}

/// Extends the 1 to 8 bytes of an id to 64 bits.
fn number(each: Type, bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(bytes) {
        *to = *from;
    }
    let unused = 64 - 8 * u32::from(each.width().clamp(1, 8));
    let high = u64::from_le_bytes(word) << unused;
    match each {
        Type::Signed(_) => (high.cast_signed() >> unused).cast_unsigned(),
        _ => high >> unused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(count: i64, ids: &[u32]) -> Vec<u8> {
        let mut bytes = vec![7; COUNT];
        bytes.extend(count.to_ne_bytes());
        ids.iter().for_each(|id| bytes.extend(id.to_ne_bytes()));
        bytes
    }

    fn read(each: Type, valid: u32, payload: &[u8]) -> (Option<u32>, Vec<u64>, bool) {
        let mut batch = Batch::default();
        let flags = batch.read(each, valid, payload);
        assert!(flags & visit_flag::SHARED != 0);
        (batch.items, batch.ids, flags & visit_flag::IDS_MISSING != 0)
    }

    /// Ids have the width and sign of their type; bytes behind them are ignored.
    #[test]
    fn ids_are_read() {
        let both = COUNT_VALID | IDS_VALID;
        let bytes = payload(2, &[5, u32::MAX, 9]);
        let signed = read(Type::Signed(4), both, &bytes);
        assert_eq!(signed, (Some(2), vec![5, u64::MAX], false));
        let unsigned = read(Type::Unsigned(4), both, &bytes);
        assert_eq!(unsigned.1, [5, u64::from(u32::MAX)]);
        assert_eq!(read(Type::Unsigned(1), both, &bytes).1, [5, 0]);
        let none = (Some(0), vec![], false);
        assert_eq!(read(Type::Signed(4), both, &payload(0, &[1])), none);
        assert_eq!(read(Type::Signed(4), both, &payload(-3, &[1])), none);
    }

    /// Unreadable ids or counts, ids beyond the bound, an implausible count and a truncated payload are `None` or
    /// missing, and flagged.
    #[test]
    fn missing_ids_are_flagged() {
        let each = Type::Unsigned(4);
        let both = COUNT_VALID | IDS_VALID;
        let many: Vec<u32> = (0..300).collect();
        let (items, ids, missing) = read(each, both, &payload(300, &many));
        assert_eq!((items, ids.len(), missing), (Some(300), MAX_BATCH, true));
        assert_eq!(
            read(each, COUNT_VALID, &payload(2, &[1, 2])),
            (Some(2), vec![], true)
        );
        assert_eq!(read(each, 0, &payload(2, &[1, 2])), (None, vec![], true));
        assert_eq!(
            read(each, both, &payload(1 << 40, &[1])),
            (None, vec![], true)
        );
        assert_eq!(
            read(each, both, &payload(3, &[1])),
            (Some(3), vec![1], true)
        );
        assert_eq!(read(each, both, &[]), (None, vec![], true));
    }
}

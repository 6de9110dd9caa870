//! End marks without a begin: of items that began before the recording or after it, or whose begin is missing.

use super::{Correlator, Lost, MarkAt, Sink};
use crate::ledger::Reason;
use crate::store::run::VisitRule;
use crate::store::schema::visit_flag;

impl Correlator {
    /// Books an end mark that closes no visit.
    ///
    /// Probes on ends are attached first, and items may be under way when those on begins are. Such an item is known
    /// as long as no mark was lost: no begin of its probe was seen yet; or, where visits stay on their thread, none
    /// on its thread. Probes on begins are taken away first: what ends from then on without a begin began when the
    /// recording had ended, if no mark was lost.
    #[cold]
    pub(super) fn without_begin(&self, mark: &MarkAt<'_>, sink: &mut impl Sink) {
        let probe = usize::from(mark.probe.0);
        let no_begin = self.next_item.get(probe) == Some(&1);
        let by_id = self
            .probes
            .get(probe)
            .is_some_and(|it| it.rule == VisitRule::ById);
        let none_on_thread = || !by_id && self.threads.get(mark.record.tid).is_none();
        // A counter that was throttled lost no mark.
        let none_lost = self.losses.all_flags() & visit_flag::LOSS == 0;
        let reason = match none_lost {
            true if no_begin || none_on_thread() => Reason::BeganBefore,
            true if mark.record.time >= self.stopping => Reason::BeganAfter,
            _ => Reason::UnmatchedMark,
        };
        sink.lost(mark.record.cpu, Lost::Mark, reason);
    }
}

//! End marks without a begin: the item began before or after the recording, or its begin mark is missing.

use super::{Correlator, Lost, MarkAt, Sink};
use crate::ledger::Reason;
use crate::store::run::VisitRule;
use crate::store::schema::visit_flag;

impl Correlator {
    /// Reports an end mark that closes no visit.
    ///
    /// End probes are attached first, so items may be under way when the begin probes follow. An end belongs to such
    /// an item if no mark was lost and no begin of its probe was seen yet; or, where visits stay on their thread, no
    /// begin on its thread. Begin probes are detached first: from then on, an end without a begin is of an item that
    /// began after the end of the recording, if no mark was lost.
    #[cold]
    pub(super) fn without_begin(&self, mark: &MarkAt<'_>, sink: &mut impl Sink) {
        let probe = usize::from(mark.probe.0);
        let no_begin = self.next_item.get(probe) == self.first_item.get(probe);
        let moves = |rule: VisitRule| rule == VisitRule::ById || rule.is_of_goroutine();
        let by_id = self.probes.get(probe).is_some_and(|it| moves(it.rule));
        let none_on_thread = || !by_id && self.threads.get(mark.record.tid).is_none();
        // Throttling stops a counter, and loses no mark.
        let none_lost = self.losses.all_flags() & visit_flag::LOSS == 0;
        let reason = match none_lost {
            true if no_begin || none_on_thread() => Reason::BeganBefore,
            true if mark.record.time >= self.stopping => Reason::BeganAfter,
            _ => Reason::UnmatchedMark,
        };
        sink.lost(mark.record.cpu, Lost::Mark, reason);
    }
}

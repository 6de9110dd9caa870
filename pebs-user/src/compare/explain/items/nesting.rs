//! Visits that lie within others.

use super::{Item, Items, NONE};
use crate::compare::explain::interrupts_and_faults;
use crate::store::run::{RunInfo, VisitRule};
use crate::store::schema::visit_flag;

/// Largest number of open visits that are searched for the enclosing one.
const DEPTH: usize = 64;

impl Items {
    /// Finds nested visits and adds their sums to the outer ones.
    pub(super) fn nest(&mut self, info: &RunInfo) {
        let mut order: Vec<u32> = (0..self.all.len() as u32).collect();
        let item = |index: u32| &self.all[index as usize];
        order.sort_by_key(|&index| {
            let it = item(index);
            (it.tid, it.begin_ns, -it.latency_ns, it.visit_id)
        });
        let calls: Vec<bool> = self
            .probes
            .iter()
            .map(|probe| probe.probe_ids.iter().all(|id| is_nesting(info, *id)))
            .collect();
        let mut open: Vec<u32> = Vec::new();
        for &index in &order {
            let it = *item(index);
            open.retain(|&outer| {
                let outer = item(outer);
                outer.tid == it.tid && outer.end_ns() > it.begin_ns
            });
            let holds = |outer: &&u32| {
                let outer = item(**outer);
                outer.end_ns() >= it.end_ns()
                    && outer.probe != it.probe
                    && calls[usize::from(outer.probe)]
            };
            if let Some(&outer) = open.iter().rev().take(DEPTH).find(holds) {
                self.parents[index as usize] = outer;
            }
            open.push(index);
            if open.len() > DEPTH {
                open.remove(0);
            }
        }
        // Innermost first: a visit is complete before it is added to its outer one.
        for &index in order.iter().rev() {
            let outer = self.parents[index as usize];
            if outer != NONE {
                let inner = self.all[index as usize];
                *self.inner.entry((outer, inner.probe)).or_default() += 1;
                self.all[outer as usize].take_in(&inner);
            }
        }
    }
}

impl Item {
    /// Adds the sums of a visit nested in this item.
    fn take_in(&mut self, inner: &Self) {
        // The time of its marks before and after their own times is in the outer visit's time.
        let most = self.net_ns();
        let with = |own: i64| (own + inner.active_ns.unwrap_or(0)).min(most);
        self.active_ns = self.active_ns.map(with);
        self.samples = self.samples.saturating_add(inner.samples);
        self.flags |= inner.flags & !visit_flag::CONDENSED;
        interrupts_and_faults::add(&mut self.interference, inner.interference);
        for (own, more) in self.counts.iter_mut().zip(inner.counts) {
            *own = own.zip(more).map(|(own, more)| own.saturating_add(more));
        }
    }
}

/// Whether visits nested in a visit of the probe on its thread are part of it: not in an event loop or
/// with goroutines, where items take turns.
fn is_nesting(info: &RunInfo, probe_id: u16) -> bool {
    let probe = info.probes.iter().find(|probe| probe.id.0 == probe_id);
    probe.is_some_and(|probe| matches!(probe.rule, VisitRule::Call | VisitRule::ByThread))
}

//! Items that go through stages.

use rustc_hash::FxHashMap;

use super::{Items, NONE, Places};
use crate::compare::explain::keys::Key;
use crate::compare::explain::model::LeftOut;
use crate::compare::losses::LossVisits;
use crate::compare::stages::{Completeness, Passages};
use crate::store::reader::{ReadError, Trace};

/// Items that go through stages.
pub(super) struct Stages {
    passages: Passages,
    /// For each visit its passage.
    places: Places,
    /// For each item of a visit that serves several its passage.
    shared: FxHashMap<(u64, u64), u32>,
    /// For each passage its item, [`NONE`] before the first of its visits; `None`: not counted.
    items: Vec<Option<u32>>,
}

impl Stages {
    pub(super) fn read(trace: &Trace, losses: LossVisits) -> Result<Self, ReadError> {
        let passages = Passages::read(trace)?;
        let (mut places, mut items) = (Places::default(), Vec::new());
        let mut shared = FxHashMap::default();
        for (number, passage) in (0..).zip(passages.iter()) {
            for step in passage.steps {
                if step.is_shared() {
                    shared.insert((step.visit_id, step.item_id()), number);
                } else {
                    places.set(step.visit_id, number);
                }
            }
            items.push(passage.counts(losses).then_some(NONE));
        }
        Ok(Self {
            passages,
            places,
            shared,
            items,
        })
    }

    /// The passage that the visit of an item is part of.
    fn passage(&self, visit_id: u64, item_id: u64) -> usize {
        let shared = self.shared.get(&(visit_id, item_id)).copied();
        shared.unwrap_or_else(|| self.places.get(visit_id)) as usize
    }

    /// Whether the item of a visit is counted.
    pub(super) fn counts(&self, visit_id: u64, item_id: u64) -> bool {
        let item = self.items.get(self.passage(visit_id, item_id));
        item.is_some_and(Option::is_some)
    }

    /// The item of a visit that is counted: `next` if it is the first one met.
    pub(super) fn item(&mut self, visit_id: u64, item_id: u64, next: u32) -> u32 {
        let passage = self.passage(visit_id, item_id);
        match self.items.get_mut(passage) {
            Some(Some(item)) => {
                *item = if *item == NONE { next } else { *item };
                *item
            }
            _ => next,
        }
    }

    /// Sets on the items what is left out, and the waits between stages.
    pub(super) fn set_waits(self, items: &mut Items) {
        for (passage, item) in self.passages.iter().zip(&self.items) {
            match item {
                Some(item) => {
                    let waits = passage.waits();
                    items.handovers.extend(
                        waits.map(|(step, waited)| (*item, Key::Handover(step.probe), waited)),
                    );
                    let steps = passage.steps.iter().filter(|step| step.others_ns > 0);
                    items
                        .handovers
                        .extend(steps.map(|step| (*item, Key::Others(step.probe), step.others_ns)));
                }
                None => {
                    let all = items.probes.iter_mut();
                    all.take(1)
                        .for_each(|it| it.left_out.passage(passage.known));
                }
            }
        }
    }
}

impl LeftOut {
    fn passage(&mut self, known: Completeness) {
        match known {
            Completeness::Whole => {}
            Completeness::Loss => self.loss += 1,
            Completeness::Open => self.open += 1,
            Completeness::Headless => self.headless += 1,
        }
    }
}

//! Divides estimates among call stacks, by the samples that they come from.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::compare::load;
use crate::compare::load::Sample;
use crate::compare::select::VisitSet;
use crate::store::reader::{ReadError, Trace};

/// For each key the shares of the call stacks in its samples, by which its estimate is divided.
#[derive(Debug)]
pub(super) struct Shares<K>(FxHashMap<K, Vec<Share>>);

/// Samples with the same call stack.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Share {
    /// The call stack.
    pub stack: Option<u32>,
    pub samples: u32,
    /// Their part of the weight.
    pub weight: f64,
}

impl<K: Eq + Hash> Shares<K> {
    /// Counts the samples of an event in a set's visits by key and stack. Reads nothing if the trace has no stacks.
    ///
    /// # Errors
    /// If the trace can't be read.
    pub(super) fn read(
        trace: &Trace,
        set: &VisitSet,
        event: u8,
        key: impl Fn(&Sample) -> K,
    ) -> Result<Self, ReadError> {
        let mut shares: FxHashMap<K, Vec<Share>> = FxHashMap::default();
        if trace.info.call_graph.is_some() {
            load::samples(trace, set, event, |sample| {
                let of_key = shares.entry(key(&sample)).or_default();
                let known = of_key.iter_mut().find(|it| it.stack == sample.stack);
                match known {
                    Some(share) => share.samples += 1,
                    None => of_key.push(Share {
                        stack: sample.stack,
                        samples: 1,
                        weight: 0.0,
                    }),
                }
            })?;
        }
        Ok(Self(shares))
    }

    /// Divides a weight and a number of samples among call stacks; without known stacks it stays in one piece.
    pub(super) fn split(&self, key: &K, samples: u32, weight: f64) -> Vec<Share> {
        let Some(shares) = self.0.get(key) else {
            return vec![Share {
                stack: None,
                samples,
                weight,
            }];
        };
        let all: u32 = shares.iter().map(|share| share.samples).sum();
        let part = |share: &Share| f64::from(share.samples) / f64::from(all);
        let shares = shares.iter().map(|share| Share {
            weight: weight * part(share),
            ..*share
        });
        shares.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts are as their samples, and add up.
    #[test]
    fn shares() {
        let share = |stack, samples| Share {
            stack,
            samples,
            weight: 0.0,
        };
        let of_one = vec![share(Some(1), 3), share(None, 1)];
        let shares = Shares([(5, of_one)].into_iter().collect());
        let parts = shares.split(&5, 4, 100.0);
        let weights: Vec<_> = parts.iter().map(|part| (part.stack, part.weight)).collect();
        assert_eq!(weights, [(Some(1), 75.0), (None, 25.0)]);
        let whole = shares.split(&6, 2, 10.0);
        assert_eq!((whole[0].samples, whole[0].weight), (2, 10.0));
    }
}

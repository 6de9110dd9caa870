//! Reads the call stacks of a trace.

use rustc_hash::FxHashMap;

use super::reader::{ReadError, Trace};
use super::schema::stacks;

/// Reads every call stack of a trace: its number, its functions, the innermost first, and whether outer ones are
/// missing.
///
/// # Errors
/// The trace can't be read.
pub(crate) fn read_stacks(
    trace: &Trace,
    mut take: impl FnMut(u32, &[u32], bool),
) -> Result<(), ReadError> {
    stacks::each(trace, |row| {
        take(row.stack_id.0, &row.frames, row.truncated);
    })
}

/// Every call stack of a trace; empty if it has none.
///
/// Memory: proportional to the table.
#[derive(Debug, Default)]
pub struct CallStacks(FxHashMap<u32, Box<[u32]>>);

impl CallStacks {
    /// Reads the call stacks.
    ///
    /// # Errors
    /// The trace can't be read.
    pub fn read(trace: &Trace) -> Result<Self, ReadError> {
        let mut stacks = FxHashMap::default();
        read_stacks(trace, |stack, frames, _| {
            stacks.insert(stack, Box::from(frames));
        })?;
        Ok(Self(stacks))
    }

    /// The known functions on the stack, from the outermost to `function`.
    pub fn path(&self, stack: Option<u32>, function: Option<u32>) -> Vec<Option<u32>> {
        match self.frames(stack) {
            Some(frames) if frames.first().copied() == function => self.wait_path(stack, function),
            _ => vec![function],
        }
    }

    /// The functions from the outermost to the kernel function that waited; up to the one in user space if no more
    /// is known.
    pub fn wait_path(&self, stack: Option<u32>, function: Option<u32>) -> Vec<Option<u32>> {
        match self.frames(stack) {
            Some(frames) => frames.iter().rev().copied().map(Some).collect(),
            None => vec![function],
        }
    }

    /// The functions of a call stack, the innermost first; `None` if there is none with this number, or it is
    /// empty.
    pub fn frames(&self, stack: Option<u32>) -> Option<&[u32]> {
        let frames: &[u32] = self.0.get(&stack?)?;
        Some(frames).filter(|frames| !frames.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path ends in the requested function: a stack that ends elsewhere is not used.
    #[test]
    fn paths() {
        let stacks = CallStacks([(7, Box::from([3, 2, 1]))].into_iter().collect());
        assert_eq!(stacks.path(Some(7), Some(3)), [Some(1), Some(2), Some(3)]);
        assert_eq!(stacks.path(Some(7), Some(9)), [Some(9)]);
        assert_eq!(stacks.path(Some(8), Some(3)), [Some(3)]);
        assert_eq!(stacks.path(None, None), [None]);
        assert_eq!(stacks.wait_path(Some(7), Some(9)), [1, 2, 3].map(Some));
        assert_eq!(stacks.wait_path(None, Some(9)), [Some(9)]);
    }
}

//! Callers of functions that keep no frame pointer, where a thread went to wait: mostly those of the C library, whose
//! callers frame pointers do not lead to.
//!
//! Such a function's caller is a fixed distance from its stack pointer at a given instruction, which its unwind table
//! (`.eh_frame`) says. So each address is looked up once, and a stack is followed by some reads of the words that came
//! with it, up to the first function with a frame pointer: from there on the kernel has followed it.

use rustc_hash::FxHashMap;

use super::Symbolizer;
use crate::stream::decode::WaitStack;
use crate::target::frames::CallerRule;
use crate::units::Pid;

/// Addresses remembered at most; beyond that all are looked up anew.
const RULES_KEPT: usize = 1 << 16;

/// Frames followed at most: more don't fit into the words.
const MOST_FRAMES: usize = 48;

/// Length of a word.
const WORD: u64 = 8;

/// Finds them. Memory: some 32 bytes an address at which a thread went to wait, and its callers'.
#[derive(Debug, Default)]
pub struct Callers {
    rules: FxHashMap<(Pid, u64), Option<CallerRule>>,
    /// [`Symbolizer::changes`] when the rules were found.
    changes: u64,
    /// Frames of the stack at hand.
    frames: Vec<u64>,
}

impl Callers {
    /// All frames of a stack, in the kernel and in user space, and whether outer ones are missing.
    pub fn frames(
        &mut self,
        pid: Pid,
        stack: &WaitStack<'_>,
        symbolizer: &mut Symbolizer,
    ) -> (&[u64], bool) {
        let number = |word: &[u8; 8]| u64::from_ne_bytes(*word);
        let (kernel, user) = stack
            .frames
            .split_at_checked(stack.kernel)
            .unwrap_or_default();
        self.frames.clear();
        self.frames.extend(kernel.iter().map(number));
        let Some((first, outer)) = user.split_first() else {
            return (&self.frames, stack.is_cut);
        };
        self.frames.push(number(first));
        let followed = Words {
            sp: stack.sp,
            words: stack.words,
        };
        let rest = self.follow(pid, number(first), &followed, symbolizer);
        if rest == Rest::ByFramePointers {
            self.frames.extend(outer.iter().map(number));
        }
        let is_cut = match rest {
            Rest::ByFramePointers => stack.is_cut,
            Rest::Nothing => false,
            Rest::Unknown => true,
        };
        (&self.frames, is_cut)
    }

    /// Adds the callers that the words lead to.
    fn follow(
        &mut self,
        pid: Pid,
        first: u64,
        words: &Words<'_>,
        symbolizer: &mut Symbolizer,
    ) -> Rest {
        let (mut at, mut sp) = (first, words.sp);
        // The frame pointer, once a function has used its register for something else.
        let mut restored: Option<Option<u64>> = None;
        for _ in 0..MOST_FRAMES {
            let gone = match restored {
                None => Rest::ByFramePointers,
                Some(_) => Rest::Unknown,
            };
            let (end, saved) = match (self.rule(pid, at, symbolizer), restored) {
                (Some(CallerRule::Outermost), _) => return Rest::Nothing,
                (None | Some(CallerRule::Uretprobe), _)
                | (Some(CallerRule::FramePointer), None) => return gone,
                (
                    Some(CallerRule::Above {
                        bytes,
                        saved_frame_pointer,
                    }),
                    _,
                ) => {
                    let end = sp.wrapping_add_signed(bytes);
                    (end, saved_frame_pointer)
                }
                (Some(CallerRule::FramePointer), Some(pointer)) => {
                    let Some(pointer) = pointer else { return gone };
                    let below_return = -2 * WORD as i64;
                    (pointer.wrapping_add(2 * WORD), Some(below_return))
                }
            };
            // A frame lies above the one that it called.
            let caller = (end > sp)
                .then(|| words.at(end.wrapping_sub(WORD)))
                .flatten();
            let Some(caller) = caller else { return gone };
            if caller == 0 {
                return Rest::Nothing;
            }
            if self.rule(pid, caller, symbolizer) == Some(CallerRule::Uretprobe) {
                return gone;
            }
            if let Some(saved) = saved {
                restored = Some(words.at(end.wrapping_add_signed(saved)));
            }
            self.frames.push(caller);
            // Of the call, not of what comes behind it.
            at = caller - 1;
            sp = end;
        }
        Rest::Unknown
    }

    fn rule(&mut self, pid: Pid, at: u64, symbolizer: &mut Symbolizer) -> Option<CallerRule> {
        if self.changes != symbolizer.changes() || self.rules.len() >= RULES_KEPT {
            self.rules.clear();
        }
        if let Some(rule) = self.rules.get(&(pid, at)) {
            return *rule;
        }
        // What is mapped may be told later.
        let rule = symbolizer.caller_rule(pid, at)?;
        // Of now: the look-up may have read mappings.
        self.changes = symbolizer.changes();
        self.rules.insert((pid, at), rule);
        rule
    }
}

/// What is known behind the frames found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// What frame pointers led to.
    ByFramePointers,
    /// There is none.
    Nothing,
    /// Not known.
    Unknown,
}

/// Memory from a stack pointer on.
struct Words<'a> {
    sp: u64,
    words: &'a [[u8; 8]],
}

impl Words<'_> {
    /// The word at an address, if it is there.
    fn at(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(self.sp)?;
        let index = usize::try_from(offset / WORD).ok()?;
        let word = self.words.get(index).filter(|_| offset % WORD == 0)?;
        Some(u64::from_ne_bytes(*word))
    }
}

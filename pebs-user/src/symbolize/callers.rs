//! Finds callers of functions without frame pointers at which a thread waits: mostly functions of the C library,
//! whose callers can't be found by frame pointers.
//!
//! Such a function's caller is at a fixed distance from the stack pointer at a given instruction, as its unwind
//! table (`.eh_frame`) specifies. So each address is looked up once, and a stack is unwound with a few reads of the
//! copied stack words, up to the first function with a frame pointer: from there the kernel has already followed
//! it.

use rustc_hash::FxHashMap;

use super::Symbolizer;
use crate::binary::frames::CallerRule;
use crate::stream::decode::WaitStack;
use crate::units::Pid;

/// Maximum number of cached rules; at the limit all are dropped.
const RULES_KEPT: usize = 1 << 16;

/// Maximum number of frames followed: more don't fit the words.
const MOST_FRAMES: usize = 48;

/// Length of a word.
const WORD: u64 = 8;

/// The unwinder and its cache. Memory: some 32 bytes for each address at which a thread waits, and for its
/// callers'.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    rules: FxHashMap<(Pid, u64), Option<CallerRule>>,
    /// [`Symbolizer::changes`] when the rules were found.
    changes: u64,
    /// Frames of the current stack.
    frames: Vec<u64>,
}

impl Callers {
    /// All frames of a stack, of the kernel and of user space, and whether outer ones are missing.
    pub(crate) fn frames(
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
        if rest == OuterFrames::ByFramePointers {
            self.frames.extend(outer.iter().map(number));
        }
        let is_cut = match rest {
            OuterFrames::ByFramePointers => stack.is_cut,
            OuterFrames::Nothing => false,
            OuterFrames::Unknown => true,
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
    ) -> OuterFrames {
        let (mut at, mut sp) = (first, words.sp);
        // Restored frame pointer, once a function has saved it and used its register otherwise.
        let mut restored: Option<Option<u64>> = None;
        for _ in 0..MOST_FRAMES {
            let gone = match restored {
                None => OuterFrames::ByFramePointers,
                Some(_) => OuterFrames::Unknown,
            };
            let (end, saved) = match (self.rule(pid, at, symbolizer), restored) {
                (Some(CallerRule::Outermost), _) => return OuterFrames::Nothing,
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
            // A caller's frame is above the callee's.
            let caller = (end > sp)
                .then(|| words.at(end.wrapping_sub(WORD)))
                .flatten();
            let Some(caller) = caller else { return gone };
            if caller == 0 {
                return OuterFrames::Nothing;
            }
            if self.rule(pid, caller, symbolizer) == Some(CallerRule::Uretprobe) {
                return gone;
            }
            if let Some(saved) = saved {
                restored = Some(words.at(end.wrapping_add_signed(saved)));
            }
            self.frames.push(caller);
            // An address in the call instruction, not after it.
            at = caller - 1;
            sp = end;
        }
        OuterFrames::Unknown
    }

    fn rule(&mut self, pid: Pid, at: u64, symbolizer: &mut Symbolizer) -> Option<CallerRule> {
        if self.changes != symbolizer.changes() || self.rules.len() >= RULES_KEPT {
            self.rules.clear();
        }
        if let Some(rule) = self.rules.get(&(pid, at)) {
            return *rule;
        }
        // `None` is not cached: mappings may be reported later.
        let rule = symbolizer.caller_rule(pid, at)?;
        // Read again: the look-up may have read mappings.
        self.changes = symbolizer.changes();
        self.rules.insert((pid, at), rule);
        rule
    }
}

/// Frames beyond those found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OuterFrames {
    /// As followed by frame pointers.
    ByFramePointers,
    /// None.
    Nothing,
    /// Unknown.
    Unknown,
}

/// Memory from a stack pointer on.
struct Words<'a> {
    sp: u64,
    words: &'a [[u8; 8]],
}

impl Words<'_> {
    /// The word at an address, if it was copied.
    fn at(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(self.sp)?;
        let index = usize::try_from(offset / WORD).ok()?;
        let word = self.words.get(index).filter(|_| offset % WORD == 0)?;
        Some(u64::from_ne_bytes(*word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbolize::SymbolizeOptions;

    const PID: Pid = Pid(1);

    /// Address at which the stack begins.
    const SP: u64 = 1000;

    /// An address in the kernel, then the frames found by frame pointers from function 100 on.
    const FRAMES: [u64; 4] = [1 << 63, 100, 301, 401];

    const fn above(bytes: i64, saved_frame_pointer: Option<i64>) -> CallerRule {
        CallerRule::Above {
            bytes,
            saved_frame_pointer,
        }
    }

    /// Frames of [`FRAMES`] with these words at the stack pointer, and rules by address.
    fn frames(words: &[u64], rules: &[(u64, CallerRule)]) -> (Vec<u64>, bool) {
        let mut symbolizer = Symbolizer::new(SymbolizeOptions::default());
        let mut callers = Callers {
            changes: symbolizer.changes(),
            ..Callers::default()
        };
        let rules = rules.iter().map(|(at, rule)| ((PID, *at), Some(*rule)));
        callers.rules.extend(rules);
        let words: Vec<[u8; 8]> = words.iter().map(|word| word.to_ne_bytes()).collect();
        let stack = WaitStack {
            kernel: 1,
            is_cut: false,
            frames: &FRAMES.map(u64::to_ne_bytes),
            sp: SP,
            words: &words,
        };
        let (frames, is_cut) = callers.frames(PID, &stack, &mut symbolizer);
        (frames[1..].to_vec(), is_cut)
    }

    /// Callers are found up to one with a frame pointer, from which the kernel's frames follow, or one whose file
    /// has no rule.
    #[test]
    fn up_to_a_frame_pointer() {
        let words = [0, 201, 0, 0, 251];
        let rules = [
            (100, above(16, None)),
            (200, above(24, None)),
            (250, CallerRule::FramePointer),
        ];
        let all = vec![100, 201, 251, 301, 401];
        assert_eq!(frames(&words, &rules), (all.clone(), false));
        assert_eq!(frames(&words, &rules[..2]), (all, false));
        assert_eq!(frames(&words, &[]), (FRAMES[1..].to_vec(), false));
    }

    /// If a function has used the frame pointer's register, the saved value is followed as far as stack words were
    /// copied; the kernel's frames are wrong then.
    #[test]
    fn saved_frame_pointers() {
        let rules = [
            (100, above(16, Some(-16))),
            (200, CallerRule::FramePointer),
            (250, CallerRule::FramePointer),
        ];
        let words = [SP + 24, 201, 0, SP + 9000, 251];
        assert_eq!(frames(&words, &rules), (vec![100, 201, 251], true));
        assert_eq!(frames(&words[..3], &rules), (vec![100, 201], true));
    }

    /// The outermost function has no caller; a frame that is not above the previous one is invalid; an address put
    /// there by a uretprobe is no caller.
    #[test]
    fn ends() {
        let words = [201, 0];
        let first = (100, above(8, None));
        let ended = frames(&words, &[first, (200, CallerRule::Outermost)]);
        assert_eq!(ended, (vec![100, 201], false));
        let rest = (vec![100, 301, 401], false);
        assert_eq!(frames(&words, &[(100, above(0, None))]), rest);
        assert_eq!(frames(&words, &[(100, above(-8, None))]), rest);
        assert_eq!(frames(&words, &[first, (201, CallerRule::Uretprobe)]), rest);
        assert_eq!(
            frames(&words, &[(100, above(16, None))]),
            (vec![100], false)
        );
    }
}

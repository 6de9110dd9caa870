//! Finds a function in another build of its program: by its code, and where that is ambiguous or has changed by the
//! functions before and behind it.
//!
//! A compiler that builds the same source again gives the same operations on the same registers; addresses, offsets and
//! constants move. So the shape of a function is a checksum of the former only.

use crate::arch;
use crate::binary::elf::Binary;
use crate::spec::Shape;

/// Fewest instructions, of the function and those of its neighbours that are the same, by which it is known: shorter
/// functions have siblings that differ in nothing else.
const TELLING: usize = 40;

/// Fewest instructions of a function by which it is known where both neighbours have changed.
const ALONE: usize = 120;

/// Largest function with a shape, bytes; larger ones are tables.
const MAX_SIZE: u64 = 1 << 20;

/// The functions of a binary by address, those without a name, too.
pub(crate) struct Shapes(Vec<Function>);

#[derive(Clone, Copy, Debug)]
struct Function {
    start: u64,
    shape: u32,
    instructions: usize,
}

/// A function that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Index of the binary.
    pub binary: usize,
    /// Its first address there.
    pub address: u64,
    /// Why it is the one.
    pub why: &'static str,
}

impl Shapes {
    /// Reads all functions: those of the unwind table, or of the symbols if there is none.
    ///
    /// Cost: disassembles all code, about 60 ns an instruction.
    #[must_use]
    pub(crate) fn of(binary: &Binary) -> Self {
        let framed = binary.frames.ranges().cloned();
        let mut ranges: Vec<_> = framed.filter(|it| binary.is_code(it.start)).collect();
        if ranges.is_empty() {
            let sized = binary.functions.iter().filter(|it| it.size > 0);
            ranges.extend(sized.map(|it| it.address..it.address.saturating_add(it.size)));
        }
        ranges.sort_unstable_by_key(|it| (it.start, it.end));
        ranges.dedup_by_key(|it| it.start);
        let functions = ranges.into_iter().map(|range| {
            let end = range.end.min(range.start.saturating_add(MAX_SIZE));
            let (shape, instructions) = arch::shape(binary.bytes(&(range.start..end)), range.start);
            Function {
                start: range.start,
                shape,
                instructions,
            }
        });
        Self(functions.collect())
    }

    /// The shape of the function that starts at an address; `None` if none is known to start there, or if others look the
    /// same.
    ///
    /// Cost: O(n) in the number of functions.
    #[must_use]
    pub(crate) fn at(&self, address: u64) -> Option<Shape> {
        let at = self.0.binary_search_by_key(&address, |it| it.start).ok()?;
        let [before, behind] = self.neighbours(at).map(|it| it.map_or(0, |it| it.shape));
        let shape = Shape {
            own: self.0[at].shape,
            before,
            behind,
        };
        let found = find(std::slice::from_ref(self), shape).ok()?;
        (found.address == address).then_some(shape)
    }

    /// The functions before and behind one.
    fn neighbours(&self, at: usize) -> [Option<Function>; 2] {
        let function = |at: Option<usize>| self.0.get(at?).copied();
        [function(at.checked_sub(1)), function(at.checked_add(1))]
    }
}

/// A function, and what of it is as wanted.
struct Candidate {
    found: Found,
    has_own: bool,
    /// Number of neighbours.
    neighbours: usize,
    /// Both neighbours, and no other function has their code.
    between: bool,
    /// Number of instructions in all that is.
    instructions: usize,
}

/// Looks for a function of this shape.
///
/// # Errors
/// Why no function, or not a single one, can be it.
pub(super) fn find(all: &[Shapes], wanted: Shape) -> Result<Found, String> {
    let mut candidates = Vec::new();
    let functions = || all.iter().flat_map(|it| &it.0);
    let is_unique = |sum: u32| functions().filter(|it| it.shape == sum).count() == 1;
    let unique = is_unique(wanted.before) && is_unique(wanted.behind);
    for (binary, shapes) in all.iter().enumerate() {
        for (at, function) in shapes.0.iter().enumerate() {
            let both = [wanted.before, wanted.behind].into_iter();
            let both = both.zip(shapes.neighbours(at));
            let same = both.filter_map(|(sum, it)| it.filter(|it| sum != 0 && it.shape == sum));
            let same: Vec<usize> = same.map(|it| it.instructions).collect();
            let has_own = function.shape == wanted.own;
            if !has_own && same.len() < 2 {
                continue;
            }
            let own = if has_own { function.instructions } else { 0 };
            candidates.push(Candidate {
                found: Found {
                    binary,
                    address: function.start,
                    why: "",
                },
                has_own,
                neighbours: same.len(),
                between: unique && same.len() == 2,
                instructions: own + same.iter().sum::<usize>(),
            });
        }
    }
    let single = |why, fits: &dyn Fn(&Candidate) -> bool| {
        let mut fitting = candidates.iter().filter(|it| fits(it));
        match (fitting.next(), fitting.next()) {
            (Some(it), None) if it.instructions >= TELLING => Some(Found { why, ..it.found }),
            _ => None,
        }
    };
    let same = candidates.iter().filter(|it| it.has_own).count();
    let found = single("it alone has the same instructions", &|it| it.has_own).filter(|_| {
        let own = candidates.iter().find(|it| it.has_own);
        own.is_some_and(|it| it.neighbours > 0 || it.instructions >= ALONE)
    });
    // In a row of functions with the same code, which one it is can't be told.
    let found = found.or_else(|| {
        let why = "it has the same instructions and the same neighbours";
        single(why, &|it| it.has_own && it.between)
    });
    let found = found.or_else(|| {
        let why = "it has the same two neighbours, but its own code has changed";
        single(why, &|it| it.neighbours == 2).filter(|_| same == 0)
    });
    found.ok_or_else(|| match same {
        0 => "no function has its shape, or its neighbours".to_owned(),
        1 => "the function of its shape is too short to be sure".to_owned(),
        n => format!("{n} functions have its shape"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::testing::{Program, compile};

    /// A server in two versions: constants, strings and the order of functions differ. `CHANGED` is more code in `work`.
    const SOURCE: &str = r#"
        #include <stdio.h>
        #include <stdlib.h>
        volatile long sink;
        #define OWN __attribute__((noinline, noclone))
        #ifdef NEWER
        OWN void added(const char *text) { for (; *text; text++) sink += *text * 31; puts("added"); }
        #endif
        #define MIX(n) sink += n; sink ^= n; sink *= n; sink -= n; sink |= n; sink = ~sink; sink &= n; sink <<= 3; sink += n; \
                       sink ^= n; sink -= n; sink *= n; sink >>= 5;
        OWN void before(long n) { MIX(n) MIX(n) for (long i = 0; i < n; i++) { sink += i * i ^ n; if (sink < LIMIT) sink -= n; } puts(TEXT); }
        OWN long work(long *list, long n) {
            long sum = LIMIT;
            for (long i = 0; i < n; i++) { sum += list[i]; if (list[i] > LIMIT) sum ^= sink; else puts(TEXT); }
        #ifdef CHANGED
            if (sum % 7 == n) { sink -= sum; sum = atol(TEXT) * n; puts("changed"); }
        #endif
            return sum;
        }
        OWN void behind(int n) { MIX(n) sink /= n; MIX(n) while (n-- > 3) { printf("%d %ld", n, sink); sink |= n << 2; } }
        OWN long tiny(long n) { return n + LIMIT; }
        OWN long small(long n) { return n + LIMIT + 1; }
        int main(int argc, char **argv) { long list[] = {argc, 2};
        #ifdef NEWER
            added(argv[0]);
        #endif
            before(argc); sink += work(list, 2) + tiny(1) + small(2); behind(argc); return 0; }
    "#;

    fn built(flags: &[&str]) -> Program {
        compile("gcc", SOURCE, &[&["-O2", "-w"], flags].concat())
    }

    fn address(program: &Program, name: &str) -> u64 {
        let binary = program.open();
        let mut functions = binary.functions.iter();
        functions
            .find(|it| it.name == name)
            .map_or(0, |it| it.address)
    }

    /// A function is found in a newer build, stripped or not, by its code; by its neighbours if its code has changed; never
    /// if both have; and a short one only with its neighbours.
    #[test]
    fn newer_builds() {
        let old = built(&["-DLIMIT=9", "-DTEXT=\"old\""]);
        let shapes = Shapes::of(&old.open());
        let shape = |name| shapes.at(address(&old, name)).expect(name);
        let newer = ["-DNEWER", "-DLIMIT=1000", "-DTEXT=\"a much longer text\""];
        let same = built(&newer);
        let changed = built(&[&newer[..], &["-DCHANGED"]].concat());
        let in_build = |program: &Program, name| {
            let wanted = address(program, name);
            let found = find(&[Shapes::of(&program.open())], shape(name));
            found.map(|it| (it.address == wanted, it.why))
        };
        for name in ["before", "work", "behind"] {
            assert_ne!(address(&same, name), address(&old, name), "{name}");
        }
        let alone = "it alone has the same instructions";
        assert_eq!(in_build(&same, "work"), Ok((true, alone)));
        assert_eq!(in_build(&same, "behind"), Ok((true, alone)));
        let neighbours = "it has the same two neighbours, but its own code has changed";
        assert_eq!(in_build(&changed, "work"), Ok((true, neighbours)));
        assert_eq!(in_build(&changed, "behind"), Ok((true, alone)));
        let gone = Shape {
            own: 1,
            behind: 2,
            ..shape("work")
        };
        let found = find(&[Shapes::of(&same.open())], gone);
        assert_eq!(
            found,
            Err("no function has its shape, or its neighbours".to_owned())
        );
        // They differ in a constant only.
        for name in ["tiny", "small"] {
            let program = old.open();
            assert!(
                Shapes::of(&program)
                    .at(address(&old, name))
                    .is_none_or(|wanted| {
                        let found = find(&[Shapes::of(&same.open())], wanted);
                        found.is_ok_and(|it| it.address == address(&same, name))
                    })
            );
        }
        let both = find(
            &[Shapes::of(&same.open()), Shapes::of(&same.open())],
            shape("behind"),
        );
        assert_eq!(both, Err("2 functions have its shape".to_owned()));
        let work = address(&same, "work");
        same.strip();
        let found = find(&[Shapes::of(&same.open())], shape("work")).expect("found");
        assert_eq!(found.address, work);
    }
}

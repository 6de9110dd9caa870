//! A trace with call stacks.

use super::{Did, Made, Maker, begin_of, info};
use crate::analysis::rng::SplitMix64;
use crate::probe::set::EntryClass;
use crate::store::reader::Trace;
use crate::store::run::{RunInfo, SiteInfo};

/// The probe of the items.
pub(crate) const SPEC: &str = "/usr/bin/server:handle(n=arg2, key=str(arg1))";

const SERVER: &str = "/usr/bin/server";
const FUNCTIONS: [(u32, &str, &str); 6] = [
    (1, "main", SERVER),
    (2, "handle", SERVER),
    (3, "lookup", SERVER),
    (4, "rehash", SERVER),
    (5, "compare", SERVER),
    (6, "parse", SERVER),
];

/// A run with call stacks, of a probe at `handle`.
pub(crate) fn with_stacks() -> RunInfo {
    let mut info = info(&[SPEC]);
    info.call_graph = Some("fp".to_owned());
    info.probes[0].sites.push(SiteInfo {
        path: SERVER.to_owned(),
        place: "handle".to_owned(),
        // Behind the function's first instruction.
        file_offset: begin_of(2) + 4,
        role: "begin".to_owned(),
        kind: "uprobe".to_owned(),
        instruction: "push".to_owned(),
        class: EntryClass::Emulated,
    });
    info
}

/// 4,000 items that compare for 40 us when they look something up; every hundredth does so for 100 us more, and for
/// 300 us when it rehashes. The first one compares in another way, for 3 samples.
pub(crate) fn server(
    info: RunInfo,
    called: fn(u32, u32, i64) -> Did,
) -> (tempfile::TempDir, Trace) {
    let parent = tempfile::tempdir().unwrap();
    let mut maker = Maker::new(&parent.path().join("t"), info);
    let lookup = maker.stack(&[5, 3, 2, 1], false);
    let rehash = maker.stack(&[5, 4, 3, 2, 1], true);
    let parse = maker.stack(&[6, 2, 1], false);
    let rare = maker.stack(&[5, 2, 1], false);
    let mut random = SplitMix64::new(11);
    for i in 0..4_000_u64 {
        let mut did = vec![
            called(6, parse, 20_000 + i64::from(random.below(20_000))),
            called(5, lookup, 30_000 + i64::from(random.below(20_000))),
        ];
        if i == 0 {
            did.push(called(5, rare, 30_000));
        }
        if i % 100 == 50 {
            did.push(called(5, lookup, 100_000));
            did.push(called(5, rehash, 300_000));
        }
        maker.visit(&Made::new(i % 4, "k", &did));
    }
    (parent, maker.finish(&FUNCTIONS))
}

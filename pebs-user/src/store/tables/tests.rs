use super::*;
use crate::store::schema::VisitFunctionRow;

/// A block of estimates is read back as the same rows.
#[test]
fn blocks_of_estimates() {
    let (functions, estimates) = crate::store::estimates::tests::visits();
    let rows = functions
        .iter()
        .map(|(visit_id, events, it)| VisitFunctionRow {
            visit_id: *visit_id,
            item_id: 10 * visit_id,
            function_id: it.function,
            event: it.event,
            samples: it.samples,
            events: (*events > 0).then_some(*events),
            first_ns: it.first,
            last_ns: it.last,
            span_ns: it.span_ns(),
            self_ns: it.self_ns(),
            self_stderr_ns: it.self_stderr_ns(),
        });
    let rows: Vec<_> = rows.collect();
    let (mut expected, mut found) = (
        VisitFunctionColumns::default(),
        VisitFunctionColumns::default(),
    );
    expected.extend(&rows);
    found.extend_parts(&estimates.parts());
    assert_eq!((found.rows(), rows.len() > 300), (rows.len(), true));
    for (found, expected) in found.end().iter().zip(&expected.end()) {
        assert!(found.pages.slices().eq(expected.pages.slices()));
        assert_eq!(found.statistics, expected.statistics);
    }
}

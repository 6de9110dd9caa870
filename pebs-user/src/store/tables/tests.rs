use super::*;

fn arg(name: &str) -> ArgColumn {
    ArgColumn {
        name: name.to_owned(),
        r#type: ArgType::U64,
    }
}

// An argument may not hide a fixed column, whatever its case, nor another argument.
#[test]
fn colliding_names_are_refused() {
    assert_eq!(check_columns(&[arg("n"), arg("kind")]), Ok(()));
    for name in ["pid", "PID", "duration_ns", "flags"] {
        let error = check_columns(&[arg("n"), arg(name)]).unwrap_err();
        assert!(matches!(error, ColumnError::Taken { .. }), "{name}");
        assert!(error.hint().unwrap().contains(name));
    }
    let error = check_columns(&[arg("n"), arg("N")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot name two arguments 'n' and 'N': SQL does not tell them apart"
    );
    assert_eq!(check_columns(&[arg("")]), Err(ColumnError::Unnamed));
}

// The columns are those that the design states, in their order; `guide/trace.md` is made of them.
#[test]
fn schemas_are_as_documented() {
    let text = |table| {
        let schema = table_schema(table, &[arg("n")]);
        let field = |f: &Arc<Field>| {
            let null = if f.is_nullable() { "?" } else { "" };
            format!("{} {}{null}", f.name(), f.data_type())
        };
        schema
            .fields()
            .iter()
            .map(field)
            .collect::<Vec<_>>()
            .join(", ")
    };
    assert_eq!(
        text(Table::Visits),
        "visit_id UInt64, item_id UInt64, probe_id UInt16, pid UInt32, tid UInt32, \
         cpu_begin UInt16?, cpu_end UInt16?, begin_ns Int64, end_ns Int64?, \
         duration_ns Int64?, oncpu_ns Int64?, net_ns Int64?, net_stderr_ns Int64?, samples UInt32, flags UInt32, \
         switches UInt32?, migrations UInt32?, page_faults UInt32?, \
         irq_ns Int64?, softirq_ns Int64?, fault_ns Int64?, major_faults UInt32?, shared_ns Int64?, n UInt64?"
    );
    assert_eq!(
        text(Table::VisitFunctions),
        "visit_id UInt64, item_id UInt64, function_id UInt32, event UInt8, samples UInt32, \
         events UInt64?, first_ns Int64, last_ns Int64, span_ns Int64, self_ns Float64?, \
         self_stderr_ns Float64?"
    );
    assert_eq!(
        text(Table::Samples),
        "time_ns Int64, visit_id UInt64?, function_id UInt32, ip UInt64, tid UInt32?, \
         cpu UInt16?, event UInt8, flags UInt32, stack_id UInt32?"
    );
    assert_eq!(
        text(Table::Waits),
        "visit_id UInt64, item_id UInt64, tid UInt32, begin_ns Int64, end_ns Int64, \
         function_id UInt32?, state Utf8, cpu_from UInt16?, cpu_to UInt16?, \
         runnable_ns Int64?, woken_by Utf8?, woken_by_pid UInt32?, woken_by_tid UInt32?, \
         preempted_by Utf8?, preempted_by_pid UInt32?, preempted_by_tid UInt32?, \
         stack_id UInt32?"
    );
    assert_eq!(
        text(Table::FunctionStats),
        "begin_ns Int64, end_ns Int64, probe_id UInt16, measure Utf8, function_id UInt32?, \
         event UInt8?, loss Boolean, visits UInt64, visits_with UInt64, samples UInt64?, \
         samples_squared Float64?, samples_product Float64?, samples_active_ns Float64?, \
         sum_ns Float64?, sum_squared Float64?, min_ns Float64?, max_ns Float64?, \
         bucket_ns List(non-null Int64), bucket_count List(non-null UInt64)"
    );
    assert_eq!(
        text(Table::Functions),
        "function_id UInt32, name Utf8?, module Utf8?, build_id Utf8?, offset UInt64?, \
         size UInt64?, file Utf8?, line UInt32?, kernel Boolean, inlined Boolean?, system_call Utf8?"
    );
    assert_eq!(
        text(Table::Losses),
        "begin_ns Int64, end_ns Int64, cpu UInt16?, tid UInt32?, reason Utf8, records UInt64?"
    );
    assert_eq!(
        text(Table::Memory),
        "time_ns Int64, visit_id UInt64?, function_id UInt32, tid UInt32?, event UInt8, \
         events UInt64?, op Utf8?, level Utf8?, snoop Utf8?, tlb Utf8?, locked Boolean?, \
         blocked Utf8?, latency_cycles UInt32?, op_cycles UInt32?, retire_cycles UInt32?, \
         tlb_cycles UInt32?, page_bytes UInt64?, taken Boolean?, mispredicted Boolean?, \
         addr UInt64?, phys_addr UInt64?, data_src UInt64?"
    );
    assert_eq!(
        text(Table::Stacks),
        "stack_id UInt32, frames List(non-null UInt32), truncated Boolean"
    );
    assert_eq!(
        text(Table::BatchItems),
        "visit_id UInt64, item_id UInt64?, items UInt32?, share Float64?"
    );
    assert_eq!(
        text(Table::Frequencies),
        "time_ns Int64, cpu UInt16, khz UInt32"
    );
}

/// Estimates that come in a block are the rows that they say.
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
    found.extend_block(&estimates);
    assert_eq!((found.rows(), rows.len() > 300), (rows.len(), true));
    for (found, expected) in found.end().iter().zip(&expected.end()) {
        assert!(found.pages.slices().eq(expected.pages.slices()));
        assert_eq!(found.statistics, expected.statistics);
    }
}

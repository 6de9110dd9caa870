//! Last pass: names of the functions that a report mentions.

use arrow::array::Array;
use rustc_hash::FxHashMap;

use super::model::{FunctionName, ProbeReport};
use crate::store::reader::{ReadError, Trace, column_bool, column_str, column_u32};
use crate::store::schema::Table;

/// Names by function id; `None` until found.
pub(super) struct Names(FxHashMap<u32, Option<FunctionName>>);

impl Names {
    /// Looks up every function that the sections mention.
    pub(super) fn read(trace: &Trace, probes: &[ProbeReport]) -> Result<Self, ReadError> {
        let mut names = Self(FxHashMap::default());
        for id in probes
            .iter()
            .flat_map(mentioned)
            .filter_map(|it| it.function_id)
        {
            names.0.insert(id, None);
        }
        let columns = ["function_id", "name", "module", "kernel"];
        for batch in trace.scan(Table::Functions, &columns)? {
            let batch = batch?;
            let ids = column_u32(&batch, 0)?.values();
            let (name, module) = (column_str(&batch, 1)?, column_str(&batch, 2)?);
            let kernel = column_bool(&batch, 3)?;
            for (row, id) in ids.iter().enumerate() {
                if let Some(entry) = names.0.get_mut(id) {
                    *entry = Some(FunctionName {
                        function_id: Some(*id),
                        name: name.is_valid(row).then(|| name.value(row).to_owned()),
                        module: module.is_valid(row).then(|| module.value(row).to_owned()),
                        kernel: kernel.value(row),
                    });
                }
            }
        }
        Ok(names)
    }

    /// Gives the functions their names.
    pub(super) fn fill(&self, probes: &mut [ProbeReport]) {
        for function in probes.iter_mut().flat_map(mentioned_mut) {
            let found = function.function_id.and_then(|id| self.0.get(&id));
            if let Some(Some(name)) = found {
                function.clone_from(name);
            }
        }
    }
}

fn mentioned(probe: &ProbeReport) -> impl Iterator<Item = &FunctionName> {
    let rows = probe.spread.iter().chain(&probe.largest);
    let visits = probe.slowest.iter().flat_map(|visit| {
        let functions = visit.functions.iter().map(|it| &it.function);
        functions.chain(visit.waits.iter().map(|it| &it.function))
    });
    rows.map(|row| &row.function).chain(visits)
}

fn mentioned_mut(probe: &mut ProbeReport) -> impl Iterator<Item = &mut FunctionName> {
    let rows = probe.spread.iter_mut().chain(&mut probe.largest);
    let visits = probe.slowest.iter_mut().flat_map(|visit| {
        let functions = visit.functions.iter_mut().map(|it| &mut it.function);
        functions.chain(visit.waits.iter_mut().map(|it| &mut it.function))
    });
    rows.map(|row| &mut row.function).chain(visits)
}

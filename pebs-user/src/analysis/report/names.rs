//! Last pass: names of the functions that a report mentions.

use arrow::array::Array;
use rustc_hash::FxHashMap;

use super::model::{FunctionName, ProbeReport};
use crate::store::reader::{ReadError, Trace, column_bool, column_str, column_u32};
use crate::store::schema::Table;
use crate::units::FunctionId;

/// Names by function id; `None` until found.
pub(in crate::analysis) struct Names(FxHashMap<u32, Option<FunctionName>>);

impl Names {
    /// Looks up every function that the sections mention.
    pub(in crate::analysis) fn read(
        trace: &Trace,
        probes: &[ProbeReport],
    ) -> Result<Self, ReadError> {
        let ids = probes.iter().flat_map(mentioned);
        Self::of(trace, ids.filter_map(|it| it.function_id))
    }

    /// Looks up these functions.
    pub(in crate::analysis) fn of(
        trace: &Trace,
        ids: impl Iterator<Item = u32>,
    ) -> Result<Self, ReadError> {
        let mut names = Self(ids.map(|id| (id, None)).collect());
        let columns = [
            "function_id",
            "name",
            "module",
            "kernel",
            "inlined",
            "system_call",
        ];
        for batch in trace.scan(Table::Functions, &columns)? {
            let batch = batch?;
            let ids = column_u32(&batch, 0)?.values();
            let (name, module) = (column_str(&batch, 1)?, column_str(&batch, 2)?);
            let (kernel, inlined) = (column_bool(&batch, 3)?, column_bool(&batch, 4)?);
            let system_call = column_str(&batch, 5)?;
            for (row, id) in ids.iter().enumerate() {
                if let Some(entry) = names.0.get_mut(id) {
                    *entry = Some(FunctionName {
                        function_id: Some(*id),
                        name: name.is_valid(row).then(|| name.value(row).to_owned()),
                        module: module.is_valid(row).then(|| module.value(row).to_owned()),
                        kernel: kernel.value(row),
                        inlined: inlined.is_valid(row) && inlined.value(row),
                        system_call: system_call
                            .is_valid(row)
                            .then(|| system_call.value(row).to_owned()),
                    });
                }
            }
        }
        Ok(names)
    }

    /// The name of a function; only its number if that is all there is.
    pub(in crate::analysis) fn get(&self, function_id: Option<u32>) -> FunctionName {
        let found = function_id.and_then(|id| self.0.get(&id).cloned().flatten());
        found.unwrap_or(FunctionName {
            function_id,
            ..FunctionName::default()
        })
    }

    /// For each function of the kernel's one that runs in the same system call, or as it does in none.
    pub(in crate::analysis) fn by_system_call(&self) -> FxHashMap<FunctionId, FunctionId> {
        let known = self
            .0
            .iter()
            .filter_map(|(id, name)| Some((*id, name.as_ref()?)));
        let mut kernel: Vec<_> = known.filter(|(_, name)| name.kernel).collect();
        kernel.sort_unstable_by_key(|it| it.0);
        let mut first: FxHashMap<Option<&str>, u32> = FxHashMap::default();
        let mut found = FxHashMap::default();
        for (id, name) in kernel {
            let of = first.entry(name.system_call.as_deref()).or_insert(id);
            found.insert(FunctionId(id), FunctionId(*of));
        }
        found
    }

    /// Gives the functions their names.
    pub(in crate::analysis) fn fill(&self, probes: &mut [ProbeReport]) {
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

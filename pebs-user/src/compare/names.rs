//! Last pass: names of the functions that a report mentions.

use rustc_hash::FxHashMap;

use crate::compare::report::model::{FunctionName, ProbeReport};
use crate::store::reader::{ReadError, Trace};
use crate::store::view::{Select as _, View as _, columns};
use crate::units::FunctionId;

columns! {
    struct Named of functions { function_id, name, module, kernel, inlined, kernel_entry, system_call }
}

/// Names by function id; `None` until found.
pub(crate) struct Names(FxHashMap<u32, Option<FunctionName>>);

impl Names {
    /// Looks up every function that the sections mention.
    pub(crate) fn read(
        trace: &Trace,
        probes: &[ProbeReport],
    ) -> Result<Self, ReadError> {
        let ids = probes.iter().flat_map(mentioned);
        Self::of(trace, ids.filter_map(|it| it.function_id))
    }

    /// Looks up these functions.
    pub(crate) fn of(
        trace: &Trace,
        ids: impl Iterator<Item = u32>,
    ) -> Result<Self, ReadError> {
        let mut names = Self(ids.map(|id| (id, None)).collect());
        for batch in Named::scan(trace)? {
            let batch = batch?;
            let columns = Named::of(&batch)?;
            for (row, id) in columns.function_id.iter().enumerate() {
                if let Some(entry) = names.0.get_mut(id) {
                    *entry = Some(FunctionName {
                        function_id: Some(*id),
                        name: columns.name.get(row).map(str::to_owned),
                        module: columns.module.get(row).map(str::to_owned),
                        kernel: columns.kernel.get(row),
                        inlined: columns.inlined.get(row) == Some(true),
                        kernel_entry: columns.kernel_entry.get(row).map(str::to_owned),
                        system_call: columns.system_call.get(row).map(str::to_owned),
                    });
                }
            }
        }
        Ok(names)
    }

    /// The name of a function; only its number if that is all there is.
    pub(crate) fn get(&self, function_id: Option<u32>) -> FunctionName {
        let found = function_id.and_then(|id| self.0.get(&id).cloned().flatten());
        found.unwrap_or(FunctionName {
            function_id,
            ..FunctionName::default()
        })
    }

    /// Maps each kernel function to the representative of those for which the kernel was entered in the same way, by the
    /// same system call if by one.
    pub(crate) fn by_kernel_entry(&self) -> FxHashMap<FunctionId, FunctionId> {
        let known = self
            .0
            .iter()
            .filter_map(|(id, name)| Some((*id, name.as_ref()?)));
        let mut kernel: Vec<_> = known.filter(|(_, name)| name.kernel).collect();
        kernel.sort_unstable_by_key(|it| it.0);
        let mut first: FxHashMap<[Option<&str>; 2], u32> = FxHashMap::default();
        let mut found = FxHashMap::default();
        for (id, name) in kernel {
            let entry = [&name.kernel_entry, &name.system_call].map(Option::as_deref);
            let of = first.entry(entry).or_insert(id);
            found.insert(FunctionId(id), FunctionId(*of));
        }
        found
    }

    /// Gives the functions their names.
    pub(crate) fn fill(&self, probes: &mut [ProbeReport]) {
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

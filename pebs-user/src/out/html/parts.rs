//! Parts of visits on a page: functions and waits, numbered as they are met.

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::compare::load::Functions;
use crate::compare::names::file_name;
use crate::terminal::shown;

/// A function on the CPU, or one off it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub(super) struct PartName {
    name: String,
    module: String,
    kernel: bool,
    /// State of a wait.
    state: Option<String>,
}

/// Numbers of the parts met.
pub(super) struct Parts<'a> {
    functions: &'a Functions,
    names: Vec<PartName>,
    numbers: FxHashMap<(Option<u32>, Option<String>), usize>,
}

impl<'a> Parts<'a> {
    pub(super) fn new(functions: &'a Functions) -> Self {
        Self {
            functions,
            names: Vec::new(),
            numbers: FxHashMap::default(),
        }
    }

    /// The names, by number.
    pub(super) fn into_names(self) -> Vec<PartName> {
        self.names
    }

    /// The number of a function, or of its waits in this state.
    pub(super) fn number(&mut self, function: Option<u32>, state: Option<&str>) -> usize {
        let key = (function, state.map(str::to_owned));
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let known = function.and_then(|id| self.functions.get(id));
        let label = function.map(|id| self.functions.label(id));
        let module = known.and_then(|it| it.module.as_deref()).unwrap_or("");
        self.names.push(PartName {
            name: shown(label.as_deref().unwrap_or("[unknown]")).into_owned(),
            module: shown(file_name(module)).into_owned(),
            kernel: known.is_some_and(|it| it.kernel),
            state: state.map(str::to_owned),
        });
        self.numbers.insert(key, self.names.len() - 1);
        self.names.len() - 1
    }
}

//! Functions as people and programs know them.

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::store::reader::{ReadError, Trace};
use crate::store::view::{Select as _, View as _, columns};
use crate::units::FunctionId;

/// The last part of a path.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A function as a report names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FunctionName {
    /// Key in the `functions` table; null where a wait's function is unknown.
    pub function_id: Option<u32>,
    /// Demangled name; null if unknown.
    pub name: Option<String>,
    /// Its module; null if unknown.
    pub module: Option<String>,
    /// Kernel code.
    pub kernel: bool,
    /// Known to be inlined into its caller.
    pub inlined: bool,
    /// Entry to the kernel in which it ran; null: unknown, or no kernel code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_entry: Option<String>,
    /// System call in which it ran; null: none, or unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_call: Option<String>,
    /// For a function without a name: its nearest caller that has one, on the call stacks of most of its samples; left out
    /// if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub called_from: Option<String>,
}

/// Whether a name was made from the address of a function that has none.
pub(crate) fn is_address(name: &str) -> bool {
    name.contains("+fn@0x")
}

impl FunctionName {
    /// Whether it is a function without a name of its own.
    pub(crate) fn is_nameless(&self) -> bool {
        self.function_id.is_some() && self.name.as_deref().is_none_or(is_address)
    }

    /// Whether it is the same function, wherever it was called from.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let alone = |it: &Self| Self {
            called_from: None,
            ..it.clone()
        };
        alone(self) == alone(other)
    }

    /// Whether it is known that the kernel ran it other than by a system call: in a page fault, or an interrupt.
    pub(crate) const fn is_uncalled(&self) -> bool {
        self.kernel_entry.is_some() && self.system_call.is_none()
    }

    /// Its module, for the kernel with how it was entered, without a function.
    pub(crate) fn module_only(&self) -> Self {
        Self {
            module: self.module.clone(),
            kernel: self.kernel,
            kernel_entry: self.kernel_entry.clone(),
            system_call: self.system_call.clone(),
            ..Self::default()
        }
    }

    /// The kernel, however it was entered.
    pub(crate) fn without_entry(self) -> Self {
        Self {
            kernel_entry: None,
            system_call: None,
            ..self
        }
    }

    /// Whether it stands for functions of a module or of the kernel.
    pub(crate) const fn is_module(&self) -> bool {
        self.function_id.is_none() && (self.module.is_some() || self.kernel)
    }
}

columns! {
    struct Named of functions { function_id, name, module, kernel, inlined, kernel_entry, system_call }
}

/// Names by function id; `None` until found.
pub(crate) struct Names(FxHashMap<u32, Option<FunctionName>>);

impl Names {
    /// Looks up these functions.
    pub(crate) fn of(trace: &Trace, ids: impl Iterator<Item = u32>) -> Result<Self, ReadError> {
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
                        called_from: None,
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

    /// The first of these functions that has a name of its own.
    pub(crate) fn first_named(&self, functions: &[u32]) -> Option<u32> {
        let found = |id: &&u32| self.0.get(id).is_some_and(Option::is_some);
        let mut known = functions.iter().filter(found);
        known
            .find(|id| !self.get(Some(**id)).is_nameless())
            .copied()
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
    pub(crate) fn fill<'a>(&self, functions: impl Iterator<Item = &'a mut FunctionName>) {
        for function in functions {
            let found = function.function_id.and_then(|id| self.0.get(&id));
            if let Some(Some(name)) = found {
                function.clone_from(name);
            }
        }
    }
}

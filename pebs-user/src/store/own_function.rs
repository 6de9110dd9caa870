//! The function that stands for pebs-trace's own work.

use super::reader::{ReadError, Trace};
use super::schema::OWN_MODULE;
use super::view::{Select as _, View as _, columns};

columns! {
    struct Modules of functions { function_id, module }
}

impl Trace {
    /// The function that represents pebs-trace's own work, which profiles exclude; `None` if it has no samples.
    ///
    /// # Errors
    /// `functions` can't be read; only at the first call.
    pub fn own_function(&self) -> Result<Option<u32>, ReadError> {
        if let Some(known) = self.own_function.get() {
            return Ok(*known);
        }
        let mut found = None;
        for batch in Modules::scan(self)? {
            let batch = batch?;
            let Modules {
                function_id,
                module,
            } = Modules::of(&batch)?;
            let own = |row: &usize| module.get(*row) == Some(OWN_MODULE);
            found = found.or((0..batch.num_rows()).find(own).map(|row| function_id[row]));
        }
        Ok(*self.own_function.get_or_init(|| found))
    }
}

//! Progress of long work, for whoever shows it.

use std::fmt;
use std::sync::Arc;

/// Receives the name of the current work, the amount done, and the total.
type Receiver = dyn Fn(&str, u64, u64) + Send + Sync;

/// The receiver; absent by default.
#[derive(Clone, Default)]
pub struct Watch(Option<Arc<Receiver>>);

impl Watch {
    /// Tells this function. It is called some times for each MB, and should be quick.
    pub fn new(receiver: impl Fn(&str, u64, u64) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(receiver)))
    }

    /// The same receiver, with this name for the work.
    #[must_use]
    pub fn named(&self, name: &'static str) -> Self {
        let whom = self.clone();
        Self::new(move |_, done, of| whom.report(name, done, of))
    }

    /// Reports that `done` of `of` units of `what` are done.
    pub fn report(&self, what: &str, done: u64, of: u64) {
        if let Some(receiver) = &self.0 {
            receiver(what, done, of);
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let watched = self.0.is_some();
        f.debug_tuple("Watch").field(&watched).finish()
    }
}

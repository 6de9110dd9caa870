//! Progress of long work, for whoever shows it.

use std::fmt;
use std::sync::Arc;

/// Receives what is being worked on, how much of it is done, and how much it is.
type Told = dyn Fn(&str, u64, u64) + Send + Sync;

/// The receiver; none by default.
#[derive(Clone, Default)]
pub struct Watch(Option<Arc<Told>>);

impl Watch {
    /// Tells this function. It is called some times for each MB, and should be quick.
    pub fn new(told: impl Fn(&str, u64, u64) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(told)))
    }

    /// The same under another name for what is being worked on.
    #[must_use]
    pub fn named(&self, name: &'static str) -> Self {
        let whom = self.clone();
        Self::new(move |_, done, of| whom.tell(name, done, of))
    }

    /// Tells that so much of `of` is done of `what`.
    pub fn tell(&self, what: &str, done: u64, of: u64) {
        if let Some(told) = &self.0 {
            told(what, done, of);
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let watched = self.0.is_some();
        f.debug_tuple("Watch").field(&watched).finish()
    }
}

#![doc = include_str!("guide/links.md")]
#![doc = include_str!("../guide/README.md")]

/// A page of the guide.
pub(crate) struct Page {
    module: &'static str,
    /// Its text, in Markdown.
    pub text: &'static str,
}

impl Page {
    /// Its name, as that of its file.
    pub(crate) fn name(&self) -> String {
        self.module.replace('_', "-")
    }

    /// Returns the page's question, its title.
    pub(crate) fn title(&self) -> &'static str {
        let first = self.text.lines().next().unwrap_or_default();
        first.trim_start_matches('#').trim()
    }
}

/// A module for each page. The definitions in `links.md` come first, and so lead to modules here, not to files.
macro_rules! pages {
    ($($page:ident: $file:literal),+ $(,)?) => {
        /// The pages but the first, in the order of that one.
        pub(crate) const PAGES: &[Page] = &[$(Page {
            module: stringify!($page),
            text: include_str!($file),
        }),+];

        $(
            pub mod $page {
                #![doc = include_str!("guide/links.md")]
                #![doc = include_str!($file)]
            }
        )+
    };
}

pages! {
    install: "../guide/install.md",
    why_slow: "../guide/why-slow.md",
    presets: "../guide/presets.md",
    items: "../guide/items.md",
    stages: "../guide/stages.md",
    batches: "../guide/batches.md",
    event_loops: "../guide/event-loops.md",
    unmarked_items: "../guide/unmarked-items.md",
    call_graphs: "../guide/call-graphs.md",
    waits: "../guide/waits.md",
    interrupts: "../guide/interrupts.md",
    memory: "../guide/memory.md",
    events: "../guide/events.md",
    cost: "../guide/cost.md",
    always_on: "../guide/always-on.md",
    lake: "../guide/lake.md",
    counting_oneself: "../guide/counting-oneself.md",
    counts: "../guide/counts.md",
    compare: "../guide/compare.md",
    fleet: "../guide/fleet.md",
    import_export: "../guide/import-export.md",
    queries: "../guide/queries.md",
    python: "../guide/python.md",
    trace: "../guide/trace.md",
    validation: "../guide/validation.md",
    words: "../guide/words.md",
    decisions: "../guide/decisions.md",
}

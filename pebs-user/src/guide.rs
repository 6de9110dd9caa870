#![doc = include_str!("guide/links.md")]
#![doc = include_str!("../guide/README.md")]

/// A module for each page. The definitions in `links.md` come first, and so lead to modules here, not to files.
macro_rules! pages {
    ($($page:ident: $file:literal),+ $(,)?) => {
        $(
            pub mod $page {
                #![doc = include_str!("guide/links.md")]
                #![doc = include_str!($file)]
            }
        )+
    };
}

pages! {
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
    counting_oneself: "../guide/counting-oneself.md",
    counts: "../guide/counts.md",
    compare: "../guide/compare.md",
    import_export: "../guide/import-export.md",
    queries: "../guide/queries.md",
    trace: "../guide/trace.md",
    validation: "../guide/validation.md",
    words: "../guide/words.md",
    decisions: "../guide/decisions.md",
}

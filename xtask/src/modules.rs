//! `cargo xtask modules`: lists the imports between modules of pebs-user, and checks that stages only look down.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::shell;

mod source;
#[cfg(test)]
mod tests;

use source::{Import, Tree};

/// A module whose children look down only, each with the siblings that it may import, all of which stand above it.
///
/// A new module or a new direction gets its place here first; one that is not in use is taken out.
struct Room {
    /// Path of the module; empty: the crate's root.
    parent: &'static str,
    directions: &'static str,
}

/// Siblings that may import each other, as long as they do.
struct Ring {
    /// As in [`Room`].
    parent: &'static str,
    modules: &'static [&'static str],
    reason: &'static str,
}

/// Rings at any depth of pebs-user that can't be cut, or only for a higher price than theirs: there is none.
const RINGS: [Ring; 0] = [];

/// Modules of pebs-user, from the root inwards.
const ROOMS: [Room; 9] = [
    Room {
        parent: "",
        directions: "
        units:
        failure:
        arch:
        files:
        rng:
        watch:
        limits:
        ledger:
        terminal:
        guide:
        binary: arch failure units files terminal
        pmu: failure units rng limits
        perf: failure watch binary pmu
        stream: units binary pmu perf
        estimate: units rng
        spec: arch
        store: arch failure units files watch limits ledger terminal stream estimate spec
        probe: arch failure units terminal binary spec store
        preset: failure files units binary spec probe
        compare: units rng estimate store
        present: failure units ledger terminal store compare
        collect: arch failure units files rng limits binary pmu perf stream store probe
        correlate: units ledger stream estimate spec store probe
        symbolize: arch failure units binary stream store
        pipeline: arch units rng ledger pmu stream estimate store probe correlate symbolize
        cost: arch failure units files present pmu stream estimate store collect
        record: arch failure units limits present binary pmu perf stream estimate spec store probe preset collect correlate symbolize pipeline cost
        lake: failure files watch store
        agent: failure files units rng watch ledger present estimate spec binary stream store probe preset collect record lake
        import: failure units binary pmu perf stream store correlate symbolize pipeline
        suggest: arch failure units limits binary pmu perf spec store probe collect symbolize cost
        out: failure units rng terminal store compare present
        selftest: arch failure units rng store compare
        validate: arch failure units files rng terminal present pmu perf stream collect cost selftest
        cmd: arch failure files units watch limits ledger terminal guide present binary pmu perf stream estimate store probe preset collect symbolize pipeline cost record lake agent import suggest compare out selftest validate
        cli: failure terminal selftest cmd
        main: terminal cmd cli
        ",
    },
    Room {
        parent: "store",
        directions: "
        argument:
        declaration:
        declare:
        descriptions:
        files:
        options:
        pages:
        segment_files:
        thrift:
        values:
        visit_set:
        columns: pages values
        prefix: thrift
        run: argument
        table: declaration descriptions
        compacted: descriptions pages columns
        flags: descriptions
        read_error: table
        row_columns: columns
        stored: pages values columns
        fields: argument declaration descriptions pages columns table flags stored
        scan: thrift values visit_set read_error
        joined: read_error scan
        segment_error: read_error
        reader: files segment_files run table values visit_set read_error fields scan
        write_error: files fields segment_error
        view: values table read_error scan reader
        args: argument read_error view
        schema: argument declaration declare pages values columns table flags read_error row_columns stored reader view
        call_stacks: reader schema
        net: columns prefix compacted read_error segment_error view schema
        own_function: reader view schema
        samples: schema
        segment: descriptions files segment_files thrift columns prefix compacted segment_error net
        visit_block: samples
        compactor: descriptions files options segment_files write_error net segment
        estimates: visit_block
        tables: argument declaration columns table row_columns schema samples estimates
        output: files options segment_files run table row_columns fields write_error segment compactor tables
        writer: argument files options run table row_columns fields write_error schema samples visit_block estimates tables output
        recover: files segment_files run table fields reader segment writer
        snapshot: files segment_files run table write_error recover
        ",
    },
    Room {
        parent: "compare",
        directions: "
        arguments:
        batches:
        chance:
        counts:
        frequencies:
        interrupts_and_faults:
        lengths:
        find:
        losses:
        info: losses
        names:
        called_from: names
        pool:
        probe:
        condensed: pool
        event: pool
        remarks:
        further: pool remarks
        classes: lengths losses pool event remarks
        counted: classes
        mine: counted
        rows:
        paths: rows
        select: lengths losses classes
        load: names event classes select
        slots:
        stages: batches losses classes
        waits:
        stats: losses condensed slots waits
        explain: arguments batches called_from chance counts frequencies lengths losses names pool probe condensed event further remarks classes counted rows paths slots stages waits stats
        diff: losses names pool remarks classes counted explain
        fleet: chance losses names condensed select slots waits stats explain diff
        report: arguments batches called_from chance counts interrupts_and_faults lengths losses names pool probe condensed event further remarks classes counted rows paths slots stages waits stats explain
        wait_reason: names waits
        ",
    },
    Room {
        parent: "compare::explain",
        directions: "
        columns:
        interrupts_and_faults:
        keys:
        request:
        chain_model:
        model: request chain_model
        item_model: model chain_model
        items: columns interrupts_and_faults keys request model
        runtimes: model
        stump: columns model items
        groups: columns model items stump
        like: groups model
        timing:
        sums: interrupts_and_faults keys model items groups timing
        contrast: interrupts_and_faults keys model sums
        chain: chain_model
        blocked: keys model items sums contrast timing chain
        when: model items groups
        counted: sums
        kept: keys timing sums
        kinds: keys model items stump groups sums contrast
        mix: columns request model items stump
        paths: keys model timing sums contrast
        nameless: model sums timing
        item: request model item_model items groups timing sums contrast chain_model chain blocked kept paths nameless
        variance: keys model sums contrast
        ",
    },
    Room {
        parent: "compare::report",
        directions: "
        classes:
        model:
        request:
        batches: model request
        stages: model request
        tally: classes model
        top:
        section: classes model request tally top
        detail: classes model section
        passes: classes request tally section
        memory: classes request section passes
        lines: classes request section passes
        rank: model section detail
        paths: model request section passes rank
        ",
    },
    Room {
        parent: "record",
        directions: "
        event:
        recording:
        replaced:
        items: recording
        start: recording
        preset: recording
        redact: recording
        targets: recording
        transport: recording
        plan: event recording redact replaced start transport
        budget: recording plan
        placement: plan
        cost: plan budget
        resolve: event recording redact replaced items start preset targets transport plan budget placement
        governor: event plan budget cost
        pace: event plan budget cost
        finish: plan cost governor
        stacks: event recording plan budget cost
        waits: cost
        remote: event finish
        run: event start plan budget placement cost governor pace finish stacks waits remote
        ",
    },
    Room {
        parent: "agent",
        directions: "
        config:
        health:
        memory:
        processes: config
        disk: config
        serve: health
        recent:
        limits:
        segment: config disk recent limits
        uploads: config
        account: disk limits segment
        supervisor: config health memory processes disk serve recent segment uploads account
        ",
    },
    // No renderer imports another.
    Room {
        parent: "out",
        directions: "
        diff:
        explain:
        export:
        fleet:
        html:
        info:
        mine:
        report:
        view:
        ",
    },
    Room {
        parent: "cmd",
        directions: "
        documents:
        fleet:
        ending:
        events:
        moment:
        progress:
        result_file:
        source:
        status:
        values:
        explain: moment progress source fleet
        push: progress
        recover: progress
        report: moment progress source
        view: moment progress source
        export: moment progress result_file source
        html: moment progress result_file source
        agent: values
        traces: values
        calibrate: values
        presets: values
        probes: values
        suggest: values
        selftest: ending status values
        diff: progress source explain
        info: source explain
        mine: result_file explain
        import: progress values report
        record: ending status values report
        plan: ending status values calibrate
        validate: result_file selftest
        doctor: values calibrate validate
        ",
    },
];

/// Options of `cargo xtask modules`.
#[derive(clap::Args)]
pub struct Args {
    /// Show the modules in this one, such as `probe`, rather than those at the crate's root
    #[arg(value_name = "MODULE", default_value = "", hide_default_value = true)]
    parent: String,
    /// Print a Graphviz graph of modules and imports
    #[arg(long)]
    dot: bool,
    /// Print a Mermaid graph of modules and imports
    #[arg(long, conflicts_with = "dot")]
    mermaid: bool,
    /// Show every import of one module by another, with its location
    #[arg(long, conflicts_with_all = ["dot", "mermaid"], num_args = 2, value_names = ["FROM", "TO"])]
    between: Option<Vec<String>>,
}

/// Shows modules and imports.
pub fn main(args: &Args) -> Result<()> {
    let modules = Modules::new(&Tree::read(&root())?, &args.parent);
    if args.dot {
        print!("{}", modules.dot());
    } else if args.mermaid {
        print!("{}", modules.mermaid());
    } else if let Some([from, to]) = args.between.as_deref() {
        for import in &modules.imports {
            if import.from == *from && import.to == *to {
                println!("{import}");
            }
        }
    } else {
        print!("{}", modules.table());
    }
    Ok(())
}

/// Fails if an import is not in a table, a ring not in [`RINGS`], or either not true: a step of `cargo xtask ci`.
pub fn check() -> Result<()> {
    let faults = faults(&Tree::read(&root())?, &ROOMS, &RINGS);
    if !faults.is_empty() {
        bail!("stages only look down\n{}", faults.join("\n"));
    }
    Ok(())
}

/// Faults of all tables, and of all modules that have modules in them.
fn faults(tree: &Tree, rooms: &[Room], rings: &[Ring]) -> Vec<String> {
    let rooms = rooms.iter().flat_map(|room| {
        let rings: Vec<_> = rings.iter().filter(|it| it.parent == room.parent).collect();
        Modules::new(tree, room.parent).faults(room, &rings)
    });
    rooms.chain(ring_faults(tree, rings)).collect()
}

/// One line for each ring that is not listed, and each listed one that does not exist.
fn ring_faults(tree: &Tree, rings: &[Ring]) -> Vec<String> {
    let parents = tree.parents();
    let found: BTreeSet<(&str, Vec<String>)> = parents
        .iter()
        .flat_map(|parent| {
            let knots = Modules::new(tree, parent).knots();
            knots.into_iter().map(|knot| (&**parent, knot))
        })
        .collect();
    let listed: BTreeSet<_> = rings.iter().map(|it| (it.parent, it.sorted())).collect();
    let mut faults = Vec::new();
    for (parent, ring) in found.difference(&listed) {
        let ring = ring.join(", ");
        faults.push(format!(
            "{} has a ring of {ring}, which RINGS in xtask/src/modules.rs does not list",
            shown(parent)
        ));
    }
    for ring in rings
        .iter()
        .filter(|it| !found.contains(&(it.parent, it.sorted())))
    {
        let Ring {
            parent,
            modules,
            reason,
        } = ring;
        faults.push(format!(
            "RINGS in xtask/src/modules.rs lists {} in {} ({reason}), which is no ring",
            modules.join(", "),
            shown(parent)
        ));
    }
    faults
}

fn shown(parent: &str) -> &str {
    match parent {
        "" => "the root",
        parent => parent,
    }
}

fn root() -> PathBuf {
    shell::workspace().join("pebs-user/src")
}

/// The modules at a crate's root, or those of one module, and the imports between them.
struct Modules {
    names: BTreeSet<String>,
    imports: Vec<Import>,
}

impl Modules {
    fn new(tree: &Tree, parent: &str) -> Self {
        let (names, imports) = tree.children(parent);
        Self { names, imports }
    }

    /// Number of imports of one module by another.
    fn edges(&self) -> BTreeMap<(&str, &str), usize> {
        let mut edges = BTreeMap::new();
        for import in &self.imports {
            *edges.entry((&*import.from, &*import.to)).or_default() += 1;
        }
        edges
    }

    /// Modules that import each other, directly or through others.
    fn knots(&self) -> Vec<Vec<String>> {
        let mut reached: BTreeSet<_> = self.edges().into_keys().collect();
        for via in &self.names {
            let from: Vec<_> = reached
                .iter()
                .filter(|(_, to)| to == via)
                .map(|edge| edge.0)
                .collect();
            let to: Vec<_> = reached
                .iter()
                .filter(|(from, _)| from == via)
                .map(|edge| edge.1)
                .collect();
            reached.extend(
                from.iter()
                    .flat_map(|from| to.iter().map(|to| (*from, *to))),
            );
        }
        let knots = self.names.iter().map(|name| {
            let is_tied =
                |other: &str| reached.contains(&(name, other)) && reached.contains(&(other, name));
            self.names
                .iter()
                .filter(|other| is_tied(other))
                .cloned()
                .collect::<Vec<_>>()
        });
        let knots: BTreeSet<_> = knots.filter(|knot| !knot.is_empty()).collect();
        knots.into_iter().collect()
    }

    fn table(&self) -> String {
        let mut text = String::new();
        let edges = self.edges();
        for name in &self.names {
            let imports = edges.iter().filter(|((from, _), _)| from == name);
            let imports: Vec<_> = imports
                .map(|((_, to), count)| format!("{to} {count}"))
                .collect();
            let line = format!("{name:<12} {}", imports.join(", "));
            let _ = writeln!(text, "{}", line.trim_end());
        }
        for knot in self.knots() {
            let _ = writeln!(text, "knot: {}", knot.join(", "));
        }
        text
    }

    fn dot(&self) -> String {
        let mut text = String::from("digraph modules {\n");
        for name in &self.names {
            let _ = writeln!(text, "  \"{name}\";");
        }
        for ((from, to), count) in self.edges() {
            let _ = writeln!(text, "  \"{from}\" -> \"{to}\" [label={count}];");
        }
        text + "}\n"
    }

    fn mermaid(&self) -> String {
        let mut text = String::from("graph TD\n");
        for name in &self.names {
            let _ = writeln!(text, "  {name}");
        }
        for ((from, to), count) in self.edges() {
            let _ = writeln!(text, "  {from} -->|{count}| {to}");
        }
        text
    }

    /// One line for each import, module and row of the table that violates the table or is superfluous.
    fn faults(&self, room: &Room, rings: &[&Ring]) -> Vec<String> {
        let table = room.table();
        let mut faults = Vec::new();
        let directions: Vec<_> = room
            .directions
            .lines()
            .filter_map(|line| line.trim().split_once(':'))
            .collect();
        let allowed: BTreeMap<_, _> = directions
            .iter()
            .map(|(from, to)| (*from, to.trim()))
            .collect();
        for name in &self.names {
            if !allowed.contains_key(&**name) {
                faults.push(format!("{name} has no row in {table}"));
            }
        }
        for import in &self.imports {
            if let Some(allowed) = allowed.get(&*import.from)
                && !allowed.split_whitespace().any(|name| name == import.to)
            {
                let allowed = if allowed.is_empty() {
                    "nothing"
                } else {
                    allowed
                };
                faults.push(format!("{import}, but may import {allowed} ({table})"));
            }
        }
        let edges = self.edges();
        for (at, (from, imports)) in directions.iter().enumerate() {
            if !self.names.contains(*from) {
                faults.push(format!("{table} has a row for {from}, which is no module"));
            }
            for to in imports.split_whitespace() {
                let is_above = directions[..at].iter().any(|(above, _)| *above == to);
                let is_in_ring = rings.iter().any(|it| it.has(from) && it.has(to));
                if !is_above && !is_in_ring {
                    faults.push(format!(
                        "{table} lets {from} import {to}, which does not stand above it"
                    ));
                } else if !edges.contains_key(&(*from, to)) {
                    faults.push(format!(
                        "{table} lets {from} import {to}, which it does not"
                    ));
                }
            }
        }
        faults
    }
}

impl Room {
    /// Its table, for messages.
    fn table(&self) -> String {
        match self.parent {
            "" => "ROOMS in xtask/src/modules.rs".to_owned(),
            parent => format!("ROOMS in xtask/src/modules.rs for {parent}"),
        }
    }
}

impl Ring {
    fn has(&self, name: &str) -> bool {
        self.modules.contains(&name)
    }

    fn sorted(&self) -> Vec<String> {
        let mut modules: Vec<_> = self.modules.iter().map(|it| (*it).to_owned()).collect();
        modules.sort_unstable();
        modules
    }
}

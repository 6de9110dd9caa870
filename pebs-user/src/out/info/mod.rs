//! Information on a trace, for people: its recording, its tables, and the account of every record.

use std::time::{Duration, SystemTime};

use bytesize::ByteSize;

use crate::compare::info::Info;
use crate::present::human::{count, safe, time};
use crate::present::table::{Column, Table as Rows};
use crate::present::{Page, account};
use crate::store::run::{HostInfo, ProbeInfo};
use crate::terminal::quoted;

/// Columns of a command line, a path or a SPEC that are shown.
const TEXT_WIDTH: usize = 400;

/// The page, laid out for a width.
pub(crate) fn page(info: &Info, width: usize) -> Page {
    let mut out = Page::new(width);
    let run = &info.run;
    out.paragraph(&title(info));
    let words: Vec<String> = run.command_line.iter().map(|it| quoted(it)).collect();
    out.line("command", &safe(&words.join(" "), TEXT_WIDTH));
    out.line("host", &host(&run.host));
    if let Some(import) = &run.import {
        out.line("import", &safe(&import.path, TEXT_WIDTH));
    }
    for probe in run.probes.iter().chain(&run.resumes).chain(&run.goroutines) {
        out.line("probe", &safe(&probe.spec, TEXT_WIDTH));
        out.line("", &sites(probe));
    }
    account::write(&mut out, (run, &info.trace), &info.losses);
    let mut table = Rows::new([
        Column::words(""),
        Column::number("rows"),
        Column::number("bytes"),
        Column::number("a row"),
        Column::number("segments").rank(1),
    ]);
    for held in &info.tables {
        table.row([
            held.table.name().into(),
            count(held.rows).into(),
            count(held.bytes).into(),
            format!("{:.1}", held.bytes as f64 / held.rows as f64).into(),
            held.segments.to_string().into(),
        ]);
    }
    out.table("tables", &table);
    let bytes: u64 = info.tables.iter().map(|it| it.bytes).sum();
    if let Some(seconds) = run.duration_ns.and_then(|end| run.recorded_seconds(end)) {
        let an_hour = (bytes as f64 / seconds * 3600.0) as u64;
        out.line(
            "size",
            &format!(
                "{}, {} an hour at this rate",
                ByteSize(bytes),
                ByteSize(an_hour)
            ),
        );
    }
    out
}

/// `t: complete, recorded 2026-11-25T22:10:03Z for 1.04 s by pebs-trace 0.1.0`.
fn title(info: &Info) -> String {
    let run = &info.run;
    let is_known = run.import.as_ref().is_none_or(|it| it.wall_clock_known);
    let since_1970 = u64::try_from(run.wall_clock_ns).ok().filter(|_| is_known);
    let begun = since_1970.map_or_else(String::new, |ns| {
        let begun = SystemTime::UNIX_EPOCH + Duration::from_nanos(ns);
        format!(" {}", humantime::format_rfc3339_seconds(begun))
    });
    let long = run.duration_ns;
    let long = long.map_or_else(String::new, |ns| format!(" for {}", time(ns as f64)));
    format!(
        "{}: {}, recorded{begun}{long}, written by pebs-trace {}",
        safe(&info.trace, TEXT_WIDTH),
        info.state,
        safe(&run.tool_version, TEXT_WIDTH)
    )
}

/// `db1: AMD EPYC, 2 CPUs, Linux 6.18.0, under kvm`.
fn host(host: &HostInfo) -> String {
    let under = host.hypervisor.as_ref();
    let under = under.map_or_else(String::new, |it| format!(", under {it}"));
    let text = format!(
        "{}: {}, {} CPUs, Linux {}{under}",
        host.name, host.cpu, host.cpus, host.kernel
    );
    safe(&text, TEXT_WIDTH)
}

/// `begin at handle+4: push rbp; return at handle+0x5c: ret`.
fn sites(probe: &ProbeInfo) -> String {
    let sites = probe.sites.iter().map(|site| {
        let text = format!("{} at {}: {}", site.role, site.place, site.instruction);
        safe(&text, TEXT_WIDTH)
    });
    sites.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::info::read;
    use crate::ledger::{Account, CpuLedger, Ledger, Reason};
    use crate::store::fixtures::Did::Ran;
    use crate::store::fixtures::{Maker, VisitFixture, info};
    use crate::store::schema::LossRow;
    use crate::store::schema::Table;
    use crate::units::TraceNs;

    /// Origin of the trace, the account of every record, and the size of each table are shown.
    #[test]
    fn all_that_is_known() {
        let mut run = info(&["./app:handle(n=arg1, key=str(arg2))"]);
        run.command_line = ["pebs-trace", "-u", "\u{1b}[2J"].map(str::to_owned).into();
        run.wall_clock_ns = 1_764_108_603_000_000_000;
        let mut samples = Account {
            seen: 9,
            written: 5,
            ..Account::default()
        };
        samples.book(Reason::DroppedRingFull, 4);
        run.ledger = Some(Ledger {
            cpus: vec![CpuLedger {
                samples,
                ..CpuLedger::default()
            }],
            ..Ledger::default()
        });
        let mut maker = Maker::new(run);
        for i in 0..20 {
            maker.visit(&VisitFixture::new(i, "k", &[Ran(1, 50_000)]));
        }
        maker.add(LossRow {
            begin_ns: TraceNs(10),
            end_ns: TraceNs(2_010),
            cpu: None,
            tid: None,
            reason: "dropped_ring_full".to_owned(),
            records: Some(4),
        });
        let trace = maker.finish(&[(1, "handle", "/opt/app")]);
        let info = read(&trace).unwrap();
        let text = page(&info, 120).plain();
        for line in [
            ": complete, recorded 2025-11-25T22:10:03Z for 1.01 ms, written by pebs-trace 0.1.0\n",
            "  command   pebs-trace -u '\\u{1b}[2J'\n",
            "  probe     ./app:handle(n=arg1, key=str(arg2))\n",
            "  ledger    9 samples seen = 5 written + 4 dropped_ring_full\n",
            "  losses    1 range of 2.00 us, 4 records, dropped_ring_full\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let visits = info.tables.iter().find(|it| it.table == Table::Visits);
        let visits = visits.unwrap();
        assert_eq!((visits.rows, visits.segments), (20, 1));
        assert!(info.tables.iter().all(|it| it.rows > 0 && it.bytes > 0));
        let json = serde_json::to_value(&info).unwrap();
        assert_eq!(json["tables"][0]["table"], "visits");
        assert_eq!(json["run"]["ledger"]["cpus"][0]["samples"]["seen"], 9);
    }
}

#![no_main]
pebs_fuzz::target!(perf_records);

#![no_main]
pebs_fuzz::target!(trace_info);

#![no_main]
pebs_fuzz::target!(usdt_arguments);

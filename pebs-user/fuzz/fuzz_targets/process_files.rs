#![no_main]
pebs_fuzz::target!(process_files);

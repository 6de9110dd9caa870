//! Hostile binaries, for [`crate::fuzz`].

use std::path::Path;
use std::rc::Rc;

use super::notes::Notes;
use super::place;
use super::survey::{SurveyOn, survey};
use super::unwind::ReturnMode;
use crate::arch::Kernel;
use crate::binary::elf::Binary;
use crate::binary::lookup;
use crate::spec::{Endpoint, Location};

/// Runs every query on a binary.
pub fn binary(data: &[u8]) {
    // The path has no debug files beside it.
    let Ok(binary) = Binary::parse(Path::new("/nonexistent/binary"), data.to_vec()) else {
        return;
    };
    let survey = survey(&binary, None, SurveyOn::Release("6.18"), usize::MAX);
    let address = survey.functions.first().map_or(0x1000, |f| f.address);
    let name = survey.functions.last().map_or("main", |f| &f.function);
    let _ = lookup::function(&binary, name);
    let places = [
        Location::Function(name.to_owned()),
        Location::Return(name.to_owned()),
        Location::ReturnAt(address),
        Location::Offset(name.to_owned(), 4),
        Location::Address(address),
        Location::FileOffset(address, None),
        Location::ReturnAtOffset(address, None),
        Location::Line("main.c".to_owned(), 3),
        Location::Usdt("p".to_owned(), "n".to_owned()),
    ];
    let binary = Rc::new(binary);
    for location in places {
        let endpoint = Endpoint {
            binary: String::new(),
            is_build: false,
            location,
            args: Vec::new(),
            ids: None,
            at: 0,
        };
        let Ok(places) = place::find(&binary, Kernel::from_release("6.18"), &endpoint) else {
            continue;
        };
        for place in places {
            for mode in [ReturnMode::Auto, ReturnMode::Ret] {
                let _ = place.points(mode, &[], &mut Notes::default());
                let _ = place.call(mode, (&[], &[]), &mut Notes::default());
            }
        }
    }
}

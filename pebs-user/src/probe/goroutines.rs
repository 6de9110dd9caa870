//! Whether visits of Go code are matched by goroutine, and the probes that follow goroutines from thread to thread.

use std::rc::Rc;

use pebs_common::record::Role;

use super::body::Body;
use super::error::ResolveError;
use super::layout::Layout;
use super::notes::Notes;
use super::place::{self, Place};
use super::program::{self, Arguments, Compiled};
use crate::arch::{Kernel, idioms};
use crate::binary::elf::Binary;
use crate::binary::go::{Code, Goroutines, SAVED_PC};
use crate::binary::lookup;
use crate::spec::expr::{Expr, Type};
use crate::spec::{Endpoint, Location};

/// A thread takes up a goroutine, the first argument.
const EXECUTE: &str = "runtime.execute";

/// A goroutine, the first argument, is over.
const EXIT: &str = "runtime.goexit0";

/// A thread looks for the next goroutine.
const SCHEDULE: &str = "runtime.schedule";

/// Instructions at a function's start among which the check of its stack is.
const PROLOGUE: usize = 4;

/// The way to follow the goroutines of a binary; or why they can't be followed, as the end of a sentence.
pub(super) type Followed = Result<Goroutines, String>;

/// Looks up what is needed to follow the goroutines of a binary.
pub(super) fn look_up(binary: &Binary) -> Followed {
    let found = Goroutines::of(binary)?;
    for name in [EXECUTE, EXIT, SCHEDULE] {
        let start = lookup::function(binary, name).map_err(|_| format!("it has no {name}"))?;
        let range = binary.extent(start.address).unwrap_or_default();
        let code = Body::read(binary, range).code;
        if !code
            .iter()
            .take(PROLOGUE)
            .any(idioms::checks_goroutine_stack)
        {
            return Err(
                "its Go is older than 1.17, and has no register for the goroutine".to_owned(),
            );
        }
    }
    Ok(found)
}

/// The offset of goroutines' numbers, if all of the places are Go code and their binary's goroutines are followed.
/// Notes if they are Go code and it is not.
pub(super) fn matched(followed: &Followed, places: &[&Place], notes: &mut Notes) -> Option<u64> {
    let name = places.first()?.name();
    let why = match followed {
        Ok(goroutines) => {
            let all = places.iter().flat_map(|place| {
                let addresses = place.addresses().into_iter();
                addresses.map(|address| goroutines.code(&place.binary, address))
            });
            let all: Vec<Code> = all.collect();
            if all.contains(&Code::Other) {
                return None;
            }
            // From place to place in the runtime, as where a thread takes up a goroutine, is a matter of the thread.
            if all.contains(&Code::Runtime) && places.len() > 1 {
                return None;
            }
            if all.iter().all(|code| *code == Code::Go) {
                notes.push(format!(
                    "visits of Go code are matched by goroutine: {EXECUTE}, {SCHEDULE} and {EXIT} are probed to follow it"
                ));
                return Some(goroutines.goid);
            }
            match all.contains(&Code::OldAbi) {
                true => "it is assembly",
                false => "the runtime's functions also run outside of goroutines",
            }
        }
        Err(why) => why,
    };
    notes.push(format!(
        "{name} is Go, but matched by thread and stack, as {why}: a call whose stack moves or that goes on on another \
         thread finds no end"
    ));
    None
}

/// Drops the places that are no Go code if others are: a pattern's visits are all matched in the same way.
pub(super) fn keep_go(followed: &Followed, places: &mut Vec<Place>, notes: &mut Notes) {
    let Ok(goroutines) = followed else { return };
    let is_go = |place: &Place| {
        let mut all = place.addresses().into_iter();
        all.all(|address| goroutines.code(&place.binary, address) == Code::Go)
    };
    let go = places.iter().filter(|it| is_go(it)).count();
    if go > 0 && go < places.len() {
        notes.push(format!(
            "{} of the functions are assembly, the runtime's or no Go code, so not probed: name them one by one",
            places.len() - go
        ));
        places.retain(is_go);
    }
}

/// The places at which the goroutines of a binary are followed, what marks read there, and their roles; ends first.
pub(super) fn places(
    binary: &Rc<Binary>,
    kernel: Kernel,
    goroutines: &Goroutines,
) -> Result<Vec<(Place, Layout, Role)>, ResolveError> {
    let mut places = Vec::new();
    for (name, role) in [
        (SCHEDULE, Role::End),
        (EXIT, Role::Return),
        (EXECUTE, Role::Begin),
    ] {
        let endpoint = Endpoint {
            binary: String::new(),
            is_build: false,
            location: Location::Function(name.to_owned()),
            args: Vec::new(),
            ids: None,
            at: 0,
        };
        let layout = match role {
            Role::End => Layout::default(),
            Role::Begin => Layout::own(number(goroutines), left_at(goroutines)),
            _ => Layout::own(number(goroutines), Vec::new()),
        };
        let found = place::find(binary, kernel, &endpoint)?.into_iter();
        places.extend(found.map(|place| (place, layout.clone(), role)));
    }
    Ok(places)
}

/// The number of the goroutine that is the first argument.
fn number(goroutines: &Goroutines) -> Option<Compiled> {
    compiled(field(Expr::Arg(1), goroutines.goid))
}

/// Reads where that goroutine left its last thread: the address at which it goes on, and the one to which the function
/// there returns. A goroutine that has not run yet has no frame, so that the second can't be read: `net/http` starts
/// one for
/// each request.
fn left_at(goroutines: &Goroutines) -> Vec<Compiled> {
    let Some(offset) = goroutines.frame else {
        return Vec::new();
    };
    // A frame begins with the pointer to the caller's, which the return address follows.
    let caller = field(field(Expr::Arg(1), offset), 8);
    let both = [field(Expr::Arg(1), SAVED_PC), caller];
    both.into_iter().filter_map(compiled).collect()
}

/// 8 bytes at an offset from an address.
fn field(address: Expr, offset: u64) -> Expr {
    let at = Expr::Add(Box::new(address), offset.cast_signed());
    Expr::Deref(Box::new(at), Some(Type::Unsigned(8)))
}

fn compiled(expr: Expr) -> Option<Compiled> {
    program::compile(&expr, Arguments::Go).ok()
}

/// SPEC of the probe that follows a binary's goroutines, for listings.
pub(super) fn spec(binary: &Binary, goroutines: &Goroutines) -> String {
    let (path, goid) = (binary.path.display(), goroutines.goid);
    format!("{path}:{EXECUTE}(id=*(arg1+{goid}):u64)..{SCHEDULE}")
}

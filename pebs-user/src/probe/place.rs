//! Resolves one endpoint of a SPEC to the instructions at which its marks are made.

use std::rc::Rc;

use pebs_common::condition::Condition;
use pebs_common::config::{PAGE, Step};

use super::behind;
use super::body::{self, Body};
use super::ends;
use super::entry::{self, Entry, Needs, ReturnAddress};
use super::error::{FunctionError, ResolveError};
use super::line;
use super::notes::Notes;
use super::path::Scope;
use super::program::{Arguments, Operand};
use super::unwind::{self, ReturnMode};
use super::usdt;
use crate::arch::unwind::RETURN_ADDRESS_BYTES;
use crate::arch::{
    self, EntryClass, Flow, Instruction, Kernel, LONGEST, REPLACED, Register, decode,
};
use crate::binary::demangle::{symbol_name, without_version};
use crate::binary::elf::{Binary, Language};
use crate::binary::inlined;
use crate::binary::locate::find_library;
use crate::binary::lookup::{self, Unknown};
use crate::spec::{Endpoint, Location};

/// `sp_adjust` of a uretprobe: after the return the stack pointer is above the return address, if that is on the stack.
const URETPROBE_ADJUST: i64 = -RETURN_ADDRESS_BYTES;

/// Maximum number of functions in a row that only jump on.
const MOST_JUMPS: usize = 4;

/// An instruction to probe.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub address: u64,
    pub file_offset: u64,
    pub uretprobe: bool,
    /// Addresses at which the program goes on after the instruction.
    pub goes_on: Vec<u64>,
    pub class: EntryClass,
    pub text: String,
    pub label: String,
    pub sp_adjust: i64,
    pub semaphore_offset: u64,
    /// A mark is made only under this condition.
    pub condition: Option<Condition>,
    /// Sites with a condition that are passed before, without a mark.
    pub passed: f64,
    /// Work of the mark program in place of the instruction.
    pub step: Step,
    /// Named arguments exist here (`retval` does not at a tail jump).
    pub readable: bool,
}

/// The instruction at an address.
fn instruction(binary: &Binary, address: u64) -> Option<Instruction> {
    let bytes = binary.bytes(&(address..address.saturating_add(LONGEST)));
    decode(bytes, address).0.first().copied()
}

/// Kind of place.
#[derive(Debug)]
enum PlaceKind {
    /// The entry of a function.
    Entry { start: u64 },
    /// The returns of a function.
    Return { start: u64 },
    /// Single instructions within functions.
    Addresses(Vec<u64>),
    /// A USDT probe: instruction and semaphore of each of its sites, and its operands.
    Usdt {
        sites: Vec<usdt::Site>,
        operands: Vec<Result<Operand, String>>,
    },
}

/// A place that was found.
#[derive(Debug)]
pub(super) struct Place {
    pub binary: Rc<Binary>,
    kernel: Kernel,
    kind: PlaceKind,
    /// Name for messages.
    name: String,
}

/// Finds an endpoint's places: one; for a USDT probe one per distinct set of operands.
pub(super) fn find(
    binary: &Rc<Binary>,
    kernel: Kernel,
    endpoint: &Endpoint,
) -> Result<Vec<Place>, ResolveError> {
    let place = |kind, name: &str| Place {
        binary: Rc::clone(binary),
        kernel,
        kind,
        name: name.to_owned(),
    };
    if let Location::Usdt(provider, name) = &endpoint.location {
        let found = usdt::find(binary, provider, name)?;
        let name = format!("usdt:{provider}:{name}");
        let places = found
            .into_iter()
            .map(|usdt::UsdtSites { sites, operands }| {
                place(PlaceKind::Usdt { sites, operands }, &name)
            });
        return Ok(places.collect());
    }
    let (kind, name) = place_of(binary, &endpoint.location)?;
    Ok(vec![place(kind, &name)])
}

/// Resolves an endpoint that is not a USDT probe to its kind and name.
fn place_of(binary: &Binary, location: &Location) -> Result<(PlaceKind, String), ResolveError> {
    let (kind, name) = match location {
        Location::Function(name) => {
            let found = function(binary, name)?;
            (
                PlaceKind::Entry {
                    start: found.address,
                },
                found.name,
            )
        }
        Location::Return(name) => {
            let found = function(binary, name)?;
            (
                PlaceKind::Return {
                    start: found.address,
                },
                found.name,
            )
        }
        Location::ReturnAt(address) => {
            if !is_start(binary, *address) {
                return Err(no_start(binary, *address));
            }
            (
                PlaceKind::Return { start: *address },
                name_of(binary, *address),
            )
        }
        Location::Offset(name, offset) => {
            let found = function(binary, name)?;
            let address = found.address.saturating_add(*offset);
            let inside = binary
                .extent(found.address)
                .is_some_and(|range| range.contains(&address));
            if !inside {
                let place = format!("{name}+{offset:#x}");
                return Err(refuse(binary, &place, "it is past the end of the function"));
            }
            (PlaceKind::Addresses(vec![address]), found.name)
        }
        Location::FileOffset(offset, _) => {
            let address = at_file_offset(binary, *offset)?;
            return place_of(binary, &Location::Address(address));
        }
        Location::ReturnAtOffset(offset, _) => {
            let address = at_file_offset(binary, *offset)?;
            return place_of(binary, &Location::ReturnAt(address));
        }
        Location::Address(address) => {
            let name = name_of(binary, *address);
            if is_start(binary, *address) {
                (PlaceKind::Entry { start: *address }, name)
            } else {
                (PlaceKind::Addresses(vec![*address]), name)
            }
        }
        Location::Line(file, number) => {
            let found = line::addresses(binary, file, *number)?;
            let kind = match found.as_slice() {
                [start] if is_start(binary, *start) => PlaceKind::Entry { start: *start },
                _ => PlaceKind::Addresses(found),
            };
            (kind, format!("{file}:{number}"))
        }
        Location::Usdt(..) => (PlaceKind::Addresses(Vec::new()), String::new()),
    };
    Ok((kind, name))
}

/// Virtual address of a file offset.
fn at_file_offset(binary: &Binary, offset: u64) -> Result<u64, ResolveError> {
    let address = binary.address_of(offset).filter(|it| binary.is_code(*it));
    address.ok_or_else(|| {
        refuse(
            binary,
            &format!("offset {offset:#x}"),
            "there is no code at that offset of the file",
        )
    })
}

fn refuse(binary: &Binary, place: &str, why: &str) -> ResolveError {
    ResolveError::Address {
        place: place.to_owned(),
        path: binary.path.clone(),
        why: why.to_owned(),
        advice: None,
    }
}

/// The same error with another hint.
fn advise(mut error: ResolveError, text: &str) -> ResolveError {
    if let ResolveError::Address { advice, .. } = &mut error {
        *advice = Some(text.to_owned());
    }
    error
}

fn function(binary: &Binary, name: &str) -> Result<lookup::FoundFunction, ResolveError> {
    lookup::function(binary, name).map_err(|why| {
        let why = match why {
            // Patterns are searched in another way.
            Unknown::NotFound(near) if !name.contains('*') => {
                match inlined::callers(binary, name) {
                    callers if callers.is_empty() => Unknown::NotFound(near),
                    callers => Unknown::Inlined(callers),
                }
            }
            why => why,
        };
        ResolveError::Function(Box::new(FunctionError {
            name: name.to_owned(),
            path: binary.path.clone(),
            tables: binary.tables.clone(),
            library: match why {
                Unknown::Imported => exporter(binary, name),
                _ => None,
            },
            why,
        }))
    })
}

/// A library needed by the binary that exports the function.
fn exporter(binary: &Binary, name: &str) -> Option<String> {
    binary.needed.iter().find_map(|soname| {
        let library = Binary::open(&find_library(soname)?).ok()?;
        let has = library
            .functions
            .iter()
            .any(|f| f.global && without_version(&f.name) == without_version(name));
        has.then(|| soname.clone())
    })
}

/// Whether a function starts at the address.
pub(super) fn is_start(binary: &Binary, address: u64) -> bool {
    binary.symbol_at(address).is_some_and(|f| f.size > 0)
        || binary
            .frames
            .range_of(address)
            .is_some_and(|r| r.start == address)
        || binary.symbol_at(address).is_none() && binary.start_of(address) == Some(address)
}

/// Error for an address that is not the start of a function, with the likely intent.
fn no_start(binary: &Binary, address: u64) -> ResolveError {
    let place = format!("{address:#x}");
    if !binary.is_code(address) {
        let error = refuse(binary, &place, "there is no code at that address");
        return match binary
            .address_of(address)
            .filter(|it| is_start(binary, *it))
        {
            Some(start) => advise(error, &at_offset(binary, address, start)),
            None => advise(
                error,
                "an address is the file's, as nm, objdump and reports show it, not that of a process",
            ),
        };
    }
    let error = refuse(
        binary,
        &place,
        "no function starts there, so it has no return",
    );
    let meant = binary
        .address_of(address)
        .filter(|it| *it != address && is_start(binary, *it));
    match (meant, binary.start_of(address)) {
        (Some(start), _) => advise(error, &at_offset(binary, address, start)),
        (None, Some(start)) => advise(
            error,
            &format!(
                "it is {:#x} bytes into {}, which starts at {start:#x}: write {start:#x}, {address:#x}..END, or \
                 {address:#x}.. for 'until the next start'",
                address - start,
                name_of(binary, address)
            ),
        ),
        (None, None) => advise(
            error,
            "write 0xADDR..END, or 0xADDR.. for 'until the next start'",
        ),
    }
}

/// Text that a function is at this offset of the file, with its address.
fn at_offset(binary: &Binary, offset: u64, start: u64) -> String {
    let name = name_of(binary, start);
    format!("{name} is at offset {offset:#x} of the file, its address is {start:#x}")
}

/// Name of the function that contains an address; `module+fn@0xADDR` if it has none.
#[must_use]
pub(super) fn name_of(binary: &Binary, address: u64) -> String {
    let start = binary.start_of(address).unwrap_or(address);
    match binary.symbol_at(start) {
        Some(function) => symbol_name(without_version(&function.name)),
        None => {
            let module = binary.path.file_name().unwrap_or_default();
            format!("{}+fn@{start:#x}", module.to_string_lossy())
        }
    }
}

/// Name of the function that holds an address, and the distance from its start.
fn label(binary: &Binary, address: u64) -> String {
    let name = name_of(binary, address);
    match address - binary.start_of(address).unwrap_or(address) {
        0 => name,
        offset => format!("{name}+{offset:#x}"),
    }
}

impl Place {
    /// Scope of names at this place, for arguments of this kind.
    pub(super) fn scope(&self, arguments: Arguments<'_>) -> Scope {
        let function = match &self.kind {
            PlaceKind::Entry { start } | PlaceKind::Return { start } => Some(*start),
            PlaceKind::Addresses(_) | PlaceKind::Usdt { .. } => None,
        };
        Scope {
            function: function.filter(|_| self.binary.language != Language::Go),
            returning: matches!(arguments, Arguments::Return),
        }
    }

    /// Meaning of `argN` at this place.
    pub(super) fn arguments(&self) -> Arguments<'_> {
        match &self.kind {
            PlaceKind::Entry { .. } if self.binary.language == Language::Go => Arguments::Go,
            PlaceKind::Entry { .. } => Arguments::SysV,
            PlaceKind::Return { .. } => Arguments::Return,
            PlaceKind::Addresses(_) => Arguments::Inside,
            PlaceKind::Usdt { operands, .. } => Arguments::Usdt(operands),
        }
    }

    /// The addresses at which the place begins; for a return, of its function.
    pub(super) fn addresses(&self) -> Vec<u64> {
        match &self.kind {
            PlaceKind::Entry { start } | PlaceKind::Return { start } => vec![*start],
            PlaceKind::Addresses(list) => list.clone(),
            PlaceKind::Usdt { sites, .. } => sites.iter().map(|site| site.address).collect(),
        }
    }

    /// Its name in messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The instructions of an endpoint that is not a whole call.
    pub(super) fn points(
        &self,
        mode: ReturnMode,
        registers: &[Register],
        notes: &mut Notes,
    ) -> Result<Vec<Point>, ResolveError> {
        match &self.kind {
            PlaceKind::Entry { start } => {
                let needs = Needs {
                    registers,
                    ..Needs::default()
                };
                Ok(vec![self.entry(*start, needs, notes)?])
            }
            PlaceKind::Return { start } => {
                let start = self.behind_jumps(*start, notes);
                self.returns(start, mode, registers, Frames::Unknown, notes)
            }
            PlaceKind::Addresses(list) => {
                list.iter().map(|address| self.address(*address)).collect()
            }
            PlaceKind::Usdt { sites, .. } => sites
                .iter()
                .map(|site| {
                    let mut point = self.address(site.address)?;
                    point.semaphore_offset = site.semaphore_offset;
                    point.label = format!("{} at {}", self.name, point.label);
                    Ok(point)
                })
                .collect(),
        }
    }

    /// The returns of a call and its entry, in this order, where they read these registers.
    pub(super) fn call(
        &self,
        mode: ReturnMode,
        (registers, at_end): (&[Register], &[Register]),
        notes: &mut Notes,
    ) -> Result<(Vec<Point>, Point), ResolveError> {
        let PlaceKind::Entry { start } = self.kind else {
            let address = match &self.kind {
                PlaceKind::Addresses(list) => list.first().copied(),
                _ => None,
            };
            return Err(no_start(&self.binary, address.unwrap_or(0)));
        };
        let start = self.behind_jumps(start, notes);
        let points = self.returns(start, mode, at_end, Frames::Matched, notes)?;
        let uretprobe = points.iter().any(|point| point.uretprobe);
        let taken: Vec<u64> = match uretprobe {
            true => Vec::new(),
            false => points.iter().map(|point| point.address).collect(),
        };
        let return_address = if uretprobe {
            ReturnAddress::OnTop
        } else {
            ReturnAddress::Known
        };
        let needs = Needs {
            registers,
            taken: &taken,
            return_address,
        };
        let entry = self.entry(start, needs, notes)?;
        let mut points = points;
        if let Some(point) = points.iter_mut().find(|point| point.uretprobe) {
            // One breakpoint serves both.
            let adjust = point.sp_adjust;
            *point = Point {
                uretprobe: true,
                sp_adjust: adjust,
                ..entry.clone()
            };
        }
        Ok((points, entry))
    }

    /// Start of the function that contains a line's code; `None` if the place is not a line, or is in several
    /// functions.
    pub(super) fn function_of_line(&self) -> Option<u64> {
        match &self.kind {
            PlaceKind::Addresses(list) if self.name.contains(':') => match list.as_slice() {
                [address] => self.binary.start_of(*address),
                _ => None,
            },
            _ => None,
        }
    }

    /// The returns of a function by its address.
    pub(super) fn returns_of(
        &self,
        start: u64,
        (mode, registers): (ReturnMode, &[Register]),
        notes: &mut Notes,
    ) -> Result<Vec<Point>, ResolveError> {
        self.returns(start, mode, registers, Frames::Unknown, notes)
    }

    /// Follows a function that only jumps to another one: compilers emit these for identical functions, and for
    /// functions that only make a tail call.
    fn behind_jumps(&self, start: u64, notes: &mut Notes) -> u64 {
        let mut at = start;
        for _ in 0..MOST_JUMPS {
            let Some(next) = self.body(at).ok().as_ref().and_then(only_jumps) else {
                break;
            };
            if next == start || !is_start(&self.binary, next) || self.binary.is_stub(next) {
                break;
            }
            at = next;
        }
        if at != start {
            let name = |address| name_of(&self.binary, address);
            notes.jumps(&name(start), name(at));
        }
        at
    }

    fn point(&self, address: u64, class: EntryClass, text: String) -> Result<Point, ResolveError> {
        let file_offset = self.binary.file_offset(address).ok_or_else(|| {
            refuse(
                &self.binary,
                &format!("{address:#x}"),
                "it lies outside the file",
            )
        })?;
        let instruction = instruction(&self.binary, address);
        Ok(Point {
            address,
            file_offset,
            uretprobe: false,
            goes_on: instruction.map_or_else(Vec::new, |it| it.goes_on().into()),
            class,
            text,
            label: label(&self.binary, address),
            sp_adjust: 0,
            semaphore_offset: 0,
            condition: None,
            passed: 0.0,
            step: instruction.map_or(Step::NONE, |it| self.step(&it, class)),
            readable: true,
        })
    }

    /// Returns the step by which the mark program does an instruction of this class.
    fn step(&self, instruction: &Instruction, class: EntryClass) -> Step {
        if class != EntryClass::InProgram {
            return Step::NONE;
        }
        let step = arch::step(body::bytes(&self.binary, instruction));
        Step {
            place: instruction.address() % PAGE,
            ..step.unwrap_or(Step::NONE)
        }
    }

    fn body(&self, start: u64) -> Result<Body, ResolveError> {
        let range = self.binary.extent(start);
        range
            .map(|range| Body::read(&self.binary, range))
            .ok_or_else(|| refuse(&self.binary, &self.name, "its end is unknown"))
    }

    fn entry(
        &self,
        start: u64,
        needs: Needs<'_>,
        notes: &mut Notes,
    ) -> Result<Point, ResolveError> {
        let body = self.body(start)?;
        let Entry {
            address,
            class,
            text,
            sp_adjust,
            condition,
            repeated,
            ..
        } = entry::choose(&self.binary, self.kernel, &body, needs).map_err(|why| {
            advise(
                refuse(&self.binary, &self.name, &why),
                "probe its caller, or a function that it calls",
            )
        })?;
        if repeated {
            notes.push(format!(
                "{} jumps back to its first instruction: each round makes a mark",
                name_of(&self.binary, start)
            ));
        }
        let mut point = self.point(address, class, text)?;
        point.sp_adjust = sp_adjust;
        point.condition = condition;
        point.label = match address - start {
            0 => name_of(&self.binary, start),
            offset => format!("{}+{offset:#x}", name_of(&self.binary, start)),
        };
        Ok(point)
    }

    /// The instructions that mark the returns of a function.
    fn returns(
        &self,
        start: u64,
        mode: ReturnMode,
        registers: &[Register],
        frames: Frames,
        notes: &mut Notes,
    ) -> Result<Vec<Point>, ResolveError> {
        let choice = unwind::decide(&self.binary, self.kernel, mode);
        let name = name_of(&self.binary, start);
        if choice.uretprobe {
            let needs = Needs {
                return_address: ReturnAddress::OnTop,
                ..Needs::default()
            };
            let mut point = self.entry(start, needs, &mut Notes::default())?;
            point.uretprobe = true;
            point.sp_adjust = URETPROBE_ADJUST;
            notes.returns(&name, "by uretprobe".to_owned(), &choice.reason);
            choice.danger.into_iter().for_each(|it| notes.push(it));
            return Ok(vec![point]);
        }
        let unclear = |why: String| ResolveError::Returns {
            name: name.clone(),
            path: self.binary.path.clone(),
            why,
        };
        let range = self
            .binary
            .extent(start)
            .ok_or_else(|| unclear("its end is unknown".to_owned()))?;
        let ends = match mode {
            ReturnMode::Ret => ends::find(&self.binary, self.kernel, range),
            _ => behind::cheapest(&self.binary, self.kernel, &range, registers),
        };
        let ends = ends.map_err(unclear)?;
        notes.returns(&name, format!("at {}", ends.describe()), &choice.reason);
        let mut points = Vec::new();
        for site in ends.sites {
            let mut point = self.point(site.address, site.class, site.text)?;
            point.readable = site.result_known;
            point.sp_adjust = site.sp_adjust;
            point.condition = site.condition;
            point.passed = site.passed;
            points.push(point);
        }
        for target in ends.conditional {
            self.conditional(target, frames, &name, &mut points, notes)?;
        }
        Ok(points)
    }

    /// Marks an exit by a conditional jump at the entry of its target, if visits are matched by frame; else it
    /// can't be distinguished from other calls of the target.
    fn conditional(
        &self,
        target: u64,
        frames: Frames,
        name: &str,
        points: &mut Vec<Point>,
        notes: &mut Notes,
    ) -> Result<(), ResolveError> {
        let other = name_of(&self.binary, target);
        if frames == Frames::Unknown {
            notes.push(format!(
                "{name} may leave by a conditional jump to {other}: such returns are not marked"
            ));
            return Ok(());
        }
        let mut point = self.entry(target, Needs::default(), notes)?;
        point.readable = false;
        points.push(point);
        notes.push(format!(
            "{name} may leave by a conditional jump to {other}: marked at its entry, where calls \
             by others fit no visit"
        ));
        Ok(())
    }

    /// Checks that an address is the start of an instruction.
    fn address(&self, address: u64) -> Result<Point, ResolveError> {
        let place = match &self.kind {
            PlaceKind::Addresses(_) if self.name.contains(':') => self.name.clone(),
            _ => format!("{address:#x}"),
        };
        let refuse = |why: &str| refuse(&self.binary, &place, why);
        if !self.binary.is_code(address) {
            return Err(refuse("there is no code at that address"));
        }
        let start = self.binary.start_of(address).ok_or_else(|| {
            refuse("no known function is there, so it is unknown where instructions start")
        })?;
        let body = self.body(start)?;
        let Some(index) = body.index_of(address) else {
            return Err(self.between(&body, address, &place));
        };
        let (instruction, class) = self
            .behind_nops(&body, index)
            .map_err(|why| refuse(&format!("'{}': {why}", body.code[index].text())))?;
        self.point(instruction.address(), class, instruction.text())
    }

    /// An instruction, or the next one behind nops that must not be probed, if it is executed exactly as often.
    fn behind_nops<'a>(
        &self,
        body: &'a Body,
        index: usize,
    ) -> Result<(&'a Instruction, EntryClass), &'static str> {
        for pair in body.code[index..].windows(2) {
            let [instruction, next] = pair else { break };
            match self.kernel.class(body::bytes(&self.binary, instruction)) {
                Ok(class) => return Ok((instruction, class)),
                Err(REPLACED) if instruction.is_nop() => {}
                Err(why) => return Err(why),
            }
            let both = (instruction.address(), next.address());
            let range = body.range.clone();
            if !ends::is_reached_only_from(&self.binary, self.kernel, range, both) {
                return Err(REPLACED);
            }
        }
        let last = body.code.last().ok_or(REPLACED)?;
        let class = self.kernel.class(body::bytes(&self.binary, last))?;
        Ok((last, class))
    }

    /// The error for an address within an instruction.
    fn between(&self, body: &Body, address: u64, place: &str) -> ResolveError {
        let before = body.code.iter().rev().find(|i| i.address() < address);
        let error = refuse(&self.binary, place, "it is in the middle of an instruction");
        match before {
            Some(before) => advise(
                error,
                &format!(
                    "'{}' is at {:#x}, the next instruction at {:#x}",
                    before.text(),
                    before.address(),
                    before.next()
                ),
            ),
            None => error,
        }
    }
}

/// Target of the jump that is all there is of a function.
fn only_jumps(body: &Body) -> Option<u64> {
    let mut code = body.code.iter().filter(|it| !it.is_landing());
    let Flow::Jump(to) = code.next()?.flow() else {
        return None;
    };
    code.all(Instruction::is_breakpoint).then_some(to)
}

/// Whether the marks of the returns are matched to visits by stack frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frames {
    Matched,
    Unknown,
}

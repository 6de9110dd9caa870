//! Resolves all SPECs of a run to the instructions to probe and the values to read there.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::rc::Rc;

use pebs_common::config::{MAX_PROBES, MAX_SITES, Step};
use pebs_common::record::Role;

use super::arity::{self, Arity};
use super::error::ResolveError;
use super::goroutines::{self, Followed};
use super::layout::{Layout, Named, SiteState};
use super::notes::{Notes, listed};
use super::path::{self, Lowered};
use super::place::{self, Place, Point};
use super::program::{self, Arguments, Batch, Compiled};
use super::set::{Probe, ProbeSet, Site};
use super::shape::{self, Shapes};
use super::unwind::ReturnMode;
use crate::arch::Kernel;
use crate::binary::build;
use crate::binary::elf::{Binary, Language};
use crate::binary::go::Goroutines;
use crate::binary::locate::{LocateError, find_library_in, is_library, locate};
use crate::binary::lookup;
use crate::spec::expr::{Expr, Fault};
use crate::spec::{Arg, End, Endpoint, Location, Spec, SpecError};
use crate::store::run::{EntryClass, VisitRule};
use crate::store::schema::ArgColumn;
use crate::units::{Pid, ProbeId};

/// Options of resolving SPECs.
#[derive(Clone, Debug, Default)]
pub struct ResolveOptions {
    /// Marks of returns.
    pub return_mode: ReturnMode,
    /// Paths and bare names are looked up in this process's file system view.
    pub pid: Option<Pid>,
    /// A program that is started later: bare names of libraries are first looked up where its loader will.
    pub program: Option<PathBuf>,
    /// The mark program may do probed instructions in place of the kernel.
    pub steps: bool,
}

/// Looks up every SPEC; the n-th becomes probe n.
///
/// Cost: each binary is read once, with its debug file.
///
/// # Errors
/// The first [`ResolveError`].
pub fn resolve(specs: &[String], options: &ResolveOptions) -> Result<ProbeSet, ResolveError> {
    resolve_with(specs, &[], options)
}

/// As [`resolve`], followed by the probes that mark where a thread continues an item (`--resume`).
///
/// # Errors
/// The first [`ResolveError`].
pub fn resolve_with(
    specs: &[String],
    resumes: &[String],
    options: &ResolveOptions,
) -> Result<ProbeSet, ResolveError> {
    limit("probes in one run", specs.len() + resumes.len(), MAX_PROBES)?;
    let mut resolver = Resolver::new(options);
    for (number, text) in (0_u16..).zip(specs) {
        let spec = Spec::parse(text)?;
        let probe = resolver.probe(ProbeId(number), &spec)?;
        resolver.set.probes.push(probe);
    }
    for (number, text) in (specs.len() as u16..).zip(resumes) {
        let spec = Spec::parse(text)?;
        let probe = resolver.resume(ProbeId(number), &spec)?;
        resolver.set.probes.push(probe);
    }
    resolver.follow_goroutines()?;
    leave_shared_to_kernel(&mut resolver.set.probes);
    let sites = resolver.set.probes.iter().map(|p| p.sites.len()).sum();
    limit("places to probe in one run", sites, MAX_SITES as usize)?;
    resolver.set.notes.extend(resolver.notes.texts());
    Ok(resolver.set)
}

/// Looks up SPECs that will not all be probed: each of them alone, and each binary once.
pub(crate) fn resolve_each(
    specs: &[String],
    options: &ResolveOptions,
) -> Vec<Result<Probe, ResolveError>> {
    let mut resolver = Resolver::new(options);
    let each = specs.iter().map(|text| {
        let spec = Spec::parse(text)?;
        resolver.probe(ProbeId(0), &spec)
    });
    each.collect()
}

/// Lets the kernel execute instructions with several marks: the first program to do one would change what the others
/// see.
fn leave_shared_to_kernel(probes: &mut [Probe]) {
    let mut marks: HashMap<(PathBuf, u64), u32> = HashMap::new();
    for site in probes.iter().flat_map(|probe| &probe.sites) {
        let place = (site.path.clone(), site.file_offset);
        *marks.entry(place).or_default() += 1;
    }
    for site in probes.iter_mut().flat_map(|probe| &mut probe.sites) {
        let place = (site.path.clone(), site.file_offset);
        if site.class == EntryClass::InProgram && marks[&place] > 1 {
            site.class = EntryClass::SingleStep;
            site.config.step = Step::NONE;
        }
    }
}

fn limit(what: &str, count: usize, limit: usize) -> Result<(), ResolveError> {
    if count <= limit {
        return Ok(());
    }
    Err(ResolveError::TooMany {
        what: what.to_owned(),
        count,
        limit,
    })
}

struct Resolver {
    options: ResolveOptions,
    kernel: Kernel,
    binaries: HashMap<PathBuf, Rc<Binary>>,
    /// Ways to follow the goroutines of each Go binary.
    goroutines: HashMap<PathBuf, Followed>,
    set: ProbeSet,
    notes: Notes,
}

/// Arguments of an endpoint, compiled.
#[derive(Default)]
struct Values {
    id: Option<Compiled>,
    batch: Option<Batch>,
    named: Vec<Named>,
}

impl Resolver {
    fn new(options: &ResolveOptions) -> Self {
        Self {
            options: options.clone(),
            // A uretprobe shares its instruction with the entry's mark.
            kernel: Kernel::running(options.steps && options.return_mode != ReturnMode::Uretprobe),
            binaries: HashMap::new(),
            goroutines: HashMap::new(),
            set: ProbeSet::default(),
            notes: Notes::default(),
        }
    }

    fn binary(&mut self, endpoint: &Endpoint) -> Result<Rc<Binary>, ResolveError> {
        let name = &*endpoint.binary;
        let path = match self.library_of_program(name) {
            _ if endpoint.is_build => {
                build::find(name, self.options.pid, self.options.program.as_deref())?
            }
            Some(path) => path,
            None => locate(name, self.options.pid)?,
        };
        if let Some(binary) = self.binaries.get(&path) {
            return Ok(Rc::clone(binary));
        }
        let binary = Rc::new(Binary::open(&path)?);
        self.binaries.insert(path, Rc::clone(&binary));
        Ok(binary)
    }

    /// The place in another build than the one that was named, by the function's shape.
    fn moved(
        &mut self,
        endpoint: &Endpoint,
        error: LocateError,
    ) -> Result<(Rc<Binary>, Option<Endpoint>), ResolveError> {
        let (Location::FileOffset(offset, Some(shape))
        | Location::ReturnAtOffset(offset, Some(shape))) = endpoint.location
        else {
            return Err(error.into());
        };
        let program = self.options.program.as_deref();
        let Some(files) = build::searched(self.options.pid, program) else {
            return Err(error.into());
        };
        let opened = files.iter().filter_map(|path| Binary::open(path).ok());
        let mut binaries: Vec<Binary> = opened.collect();
        let shapes: Vec<Shapes> = binaries.iter().map(Shapes::of).collect();
        let found = shape::find(&shapes, shape).map_err(|why| match error {
            LocateError::Build {
                id,
                why: before,
                is_process,
            } => LocateError::Build {
                id,
                why: format!("{before}, and {why}"),
                is_process,
            },
            error => error,
        })?;
        let binary = Rc::new(binaries.swap_remove(found.binary));
        self.notes.push(format!(
            "{}+{offset:#x} is of another build: in {} it is {} at {:#x}, as {}",
            endpoint.binary,
            binary.path.display(),
            place::name_of(&binary, found.address),
            found.address,
            found.why
        ));
        let location = match endpoint.location {
            Location::ReturnAtOffset(..) => Location::ReturnAt(found.address),
            _ => Location::Address(found.address),
        };
        let endpoint = Endpoint {
            location,
            ..endpoint.clone()
        };
        self.binaries
            .insert(binary.path.clone(), Rc::clone(&binary));
        Ok((binary, Some(endpoint)))
    }

    /// A library in a folder that the loader of the program searches before its own.
    fn library_of_program(&self, name: &str) -> Option<PathBuf> {
        let program = self.options.program.as_ref().filter(|_| is_library(name))?;
        let program = std::fs::canonicalize(program).ok()?;
        let mut folders: Vec<PathBuf> = std::env::var_os("LD_LIBRARY_PATH")
            .map(|list| std::env::split_paths(&list).collect())
            .unwrap_or_default();
        // A script has none of its own.
        folders.extend(Binary::open(&program).map_or_else(|_| Vec::new(), |it| it.library_folders));
        find_library_in(&folders, name)
    }

    /// Offset of goroutines' numbers if visits between these places are matched by goroutine: if all are Go code.
    fn goroutines(&mut self, places: &[&Place]) -> Option<u64> {
        let binary = &places.first()?.binary;
        if places.iter().any(|it| it.binary.path != binary.path) {
            return None;
        }
        let followed = followed(&mut self.goroutines, binary)?;
        goroutines::matched(followed, places, &mut self.notes)
    }

    /// Adds a probe for each binary with visits of goroutines.
    fn follow_goroutines(&mut self) -> Result<(), ResolveError> {
        let probes = self
            .set
            .probes
            .iter()
            .filter(|it| it.rule.is_of_goroutine());
        let mut paths: Vec<PathBuf> = Vec::new();
        for site in probes.flat_map(|probe| &probe.sites) {
            if !paths.contains(&site.path) {
                paths.push(site.path.clone());
            }
        }
        limit(
            "probes in one run",
            self.set.probes.len() + paths.len(),
            MAX_PROBES,
        )?;
        for path in paths {
            if let (Some(Ok(followed)), Some(binary)) =
                (self.goroutines.get(&path), self.binaries.get(&path))
            {
                let probe = self.scheduler(binary, followed)?;
                self.set.probes.push(probe);
            }
        }
        Ok(())
    }

    /// The probe that follows a binary's goroutines.
    fn scheduler(&self, binary: &Rc<Binary>, followed: &Goroutines) -> Result<Probe, ResolveError> {
        let id = ProbeId(self.set.probes.len() as u16);
        let mut sites = Vec::new();
        for (place, layout, role) in goroutines::places(binary, self.kernel, followed)? {
            let mode = self.options.return_mode;
            let points = place.points(mode, &layout.registers(), &mut Notes::default())?;
            let points = points.iter();
            sites.extend(points.map(|point| self.site(id, &place, point, &layout, role)));
        }
        Ok(Probe {
            id,
            spec: goroutines::spec(binary, followed),
            rule: VisitRule::ByGoroutine,
            resumes: true,
            has_id: true,
            batch: None,
            sites,
            begin_fields: Vec::new(),
            end_fields: Vec::new(),
        })
    }

    /// The places of an endpoint that is not a pattern, at least one.
    fn exact(&mut self, endpoint: &Endpoint) -> Result<Vec<Place>, ResolveError> {
        let (binary, moved) = match self.binary(endpoint) {
            Err(ResolveError::Locate(error)) => self.moved(endpoint, error)?,
            found => (found?, None),
        };
        let endpoint = moved.as_ref().unwrap_or(endpoint);
        let places = place::find(&binary, self.kernel, endpoint)?;
        if let Location::Function(name) | Location::Return(name) = &endpoint.location {
            let addresses = places.iter().flat_map(Place::addresses);
            let others = addresses.flat_map(|at| lookup::other_names(&binary, at, name));
            let others: Vec<String> = others.collect();
            if !others.is_empty() {
                self.notes.push(format!(
                    "{name} is also {}: it is one function, and all its calls are visits",
                    listed(&others)
                ));
            }
        }
        let mut args = endpoint.args.iter();
        if args.any(|arg| arity::last_argument(&arg.expr).is_some()) {
            let entries = places
                .iter()
                .filter(|it| matches!(it.arguments(), Arguments::SysV));
            let clones = entries.filter(|it| arity::is_clone(it.name()));
            clones.for_each(|it| self.notes.clones(it.name()));
        }
        Ok(places)
    }

    /// The places of an endpoint that is not a pattern: of each function if it names several, `read|recv`.
    fn named(&mut self, endpoint: &Endpoint) -> Result<Vec<Place>, ResolveError> {
        let exact = self.exact(endpoint);
        let (Location::Function(names) | Location::Return(names)) = &endpoint.location else {
            return exact;
        };
        let names: Vec<&str> = names.split('|').map(str::trim).collect();
        // `operator||` is one name.
        if exact.is_ok() || names.len() < 2 || names.contains(&"") {
            return exact;
        }
        let mut places = Vec::new();
        for name in names {
            let location = match endpoint.location {
                Location::Return(_) => Location::Return(name.to_owned()),
                _ => Location::Function(name.to_owned()),
            };
            places.extend(self.exact(&Endpoint {
                location,
                ..endpoint.clone()
            })?);
        }
        Ok(places)
    }

    /// The places of an endpoint: several if a function's name is a pattern.
    fn places(&mut self, endpoint: &Endpoint) -> Result<Vec<Place>, ResolveError> {
        let exact = self.named(endpoint);
        let Location::Function(pattern) = &endpoint.location else {
            return exact;
        };
        if !pattern.contains('*') || exact.is_ok() {
            return exact;
        }
        let binary = self.binary(endpoint)?;
        let mut found = lookup::matches(&binary, pattern);
        // Helpers of the C runtime (`frame_dummy`) are labels without a size.
        let is_start = |address: &u64| place::is_start(&binary, *address);
        if found.iter().any(is_start) {
            found.retain(is_start);
        }
        limit(
            "places to probe in one run",
            found.len(),
            MAX_SITES as usize,
        )?;
        if found.is_empty() {
            return exact;
        }
        let mut places = Vec::new();
        for address in &found {
            places.extend(self.exact(&Endpoint {
                location: Location::Address(*address),
                ..endpoint.clone()
            })?);
        }
        let count = match found.len() {
            1 => "1 function".to_owned(),
            n => format!("{n} functions, one probe"),
        };
        self.notes.push(format!("{pattern} is {count}"));
        Ok(places)
    }

    fn probe(&mut self, id: ProbeId, spec: &Spec) -> Result<Probe, ResolveError> {
        let mut probe: Option<Probe> = None;
        if let End::At(endpoint) = &spec.end {
            let (begins, ends) = (self.named(&spec.begin)?, self.named(endpoint)?);
            for pair in pairs(&begins, &ends) {
                let mut more = self.range(id, spec, pair, endpoint)?;
                // The shorter side has its last place in several pairs.
                let known = probe.iter().flat_map(|it: &Probe| &it.sites);
                let known: Vec<&Site> = known.collect();
                more.sites.retain(|site| !known.contains(&site));
                merge(spec, &mut probe, more)?;
            }
        } else {
            let mut places = self.places(&spec.begin)?;
            if places.len() > 1
                && let Some(followed) = followed(&mut self.goroutines, &places[0].binary)
            {
                goroutines::keep_go(followed, &mut places, &mut self.notes);
            }
            let mut refused = None;
            for place in &places {
                match self.probe_at(id, spec, place) {
                    Ok(more) => merge(spec, &mut probe, more)?,
                    // Some of many functions may never return.
                    Err(ResolveError::Returns { name, why, path }) if places.len() > 1 => {
                        let how = "can't be found, so not probed".to_owned();
                        self.notes.returns(&name, how, &why);
                        refused.get_or_insert(ResolveError::Returns { name, why, path });
                    }
                    Err(error) => return Err(error),
                }
            }
            if let (None, Some(error)) = (&probe, refused) {
                return Err(error);
            }
        }
        let Some(mut probe) = probe else {
            let fault = Fault::new(spec.begin.at, "there is no such place");
            return Err(SpecError::new(&spec.text, fault).into());
        };
        // Stable: ends first.
        probe
            .sites
            .sort_by_key(|site| !matches!(site.role, Role::End | Role::Return));
        Ok(probe)
    }

    /// Resolves a `--resume` SPEC: where a thread continues an item, and until where it works on it.
    fn resume(&mut self, id: ProbeId, spec: &Spec) -> Result<Probe, ResolveError> {
        let fault = |at, what: &str, hint: &str| {
            let fault = Fault::new(at, what).hint(hint);
            Err(SpecError::new(&spec.text, fault).into())
        };
        let ends = match &spec.end {
            End::At(endpoint) => &endpoint.args[..],
            End::Return | End::Next => &[],
        };
        let has_id = spec.begin.args.iter().any(|arg| arg.name == "id");
        let mut args = spec.begin.args.iter().chain(ends);
        if let Some(other) = args.find(|arg| arg.name != "id") {
            return fault(
                other.at,
                "a resume reads nothing but id=",
                "columns are read where items begin and end: --uprobe",
            );
        }
        if !has_id || spec.begin.ids.is_some() {
            return fault(
                spec.text.len(),
                "the thread turns to which item?",
                "BIN:FUNC(id=EXPR), with the same id as the --uprobe of the items",
            );
        }
        if !self.set.probes.iter().any(|probe| probe.has_id) {
            return fault(
                spec.begin.at,
                "no --uprobe reads an id of its items",
                "--uprobe 'BIN:START(id=EXPR)..END(id=EXPR)': the same id as here",
            );
        }
        let mut probe = self.probe(id, spec)?;
        probe.resumes = true;
        Ok(probe)
    }

    /// From one place to its return, or to the next begin.
    fn probe_at(&mut self, id: ProbeId, spec: &Spec, begin: &Place) -> Result<Probe, ResolveError> {
        match &spec.end {
            End::Next => {
                let values = begin_values(spec, &spec.begin.args, begin)?;
                let layout = self.layout(spec, values)?;
                let sites = self.sites(id, begin, &layout, Role::Next)?;
                Ok(probe(
                    id,
                    spec,
                    VisitRule::UntilNext,
                    None,
                    sites,
                    [layout, Layout::default()],
                ))
            }
            _ => match begin.function_of_line() {
                Some(start) => self.line_to_return(id, spec, begin, start),
                None => self.call(id, spec, begin),
            },
        }
    }

    /// START..END.
    fn range(
        &mut self,
        id: ProbeId,
        spec: &Spec,
        (begin, end): (&Place, &Place),
        endpoint: &Endpoint,
    ) -> Result<Probe, ResolveError> {
        let first = begin_values(spec, &spec.begin.args, begin)?;
        let second = values(spec, &endpoint.args, end)?;
        let fault = |at, what: &str, hint: &str| {
            ResolveError::Spec(SpecError::new(&spec.text, Fault::new(at, what).hint(hint)))
        };
        if let Some(ids) = &endpoint.ids {
            return Err(fault(
                ids.at,
                "ids= is read where visits start",
                "write START(ids=...)..END",
            ));
        }
        if second.id.is_some() && first.batch.is_some() {
            return Err(fault(
                endpoint.at,
                "END has id= but START has ids=",
                "a batch ends as a whole: leave id= out, and it is matched by thread",
            ));
        }
        if second.id.is_some() && first.id.is_none() {
            return Err(fault(
                endpoint.at,
                "END has id= but START has none",
                "give both an id to match by id, or neither to match by thread",
            ));
        }
        let twice = second
            .named
            .iter()
            .find(|b| first.named.iter().any(|a| a.name == b.name));
        if let Some(argument) = twice {
            return Err(fault(
                argument.at,
                "START and END both set this column",
                "give one of them another name",
            ));
        }
        let goid = match second.id {
            Some(_) => None,
            None => self.goroutines(&[begin, end]),
        };
        let rule = match (second.id.is_some(), goid) {
            (true, _) => VisitRule::ById,
            (false, Some(_)) => VisitRule::ByGoroutine,
            (false, None) => VisitRule::ByThread,
        };
        let layouts = [self.layout(spec, first)?, self.layout(spec, second)?];
        let mut sites = self.sites(id, end, &layouts[1], Role::End)?;
        sites.extend(self.sites(id, begin, &layouts[0], Role::Begin)?);
        Ok(probe(id, spec, rule, goid, sites, layouts))
    }

    /// From a line to the return of its function.
    fn line_to_return(
        &mut self,
        id: ProbeId,
        spec: &Spec,
        place: &Place,
        start: u64,
    ) -> Result<Probe, ResolveError> {
        let (late, early): (Vec<Arg>, Vec<Arg>) = (spec.begin.args.iter().cloned())
            .partition(|arg| arg.expr.uses_retval() && arg.name != "id");
        let first = begin_values(spec, &early, place)?;
        let second = values_at(spec, &late, place, Arguments::Return)?;
        let layouts = [self.layout(spec, first)?, self.layout(spec, second)?];
        let registers = layouts[1].registers();
        let how = (self.options.return_mode, &*registers);
        let ends = place.returns_of(start, how, &mut self.notes)?;
        let mut sites: Vec<Site> = ends
            .iter()
            .map(|point| self.site(id, place, point, &layouts[1], Role::End))
            .collect();
        sites.extend(self.sites(id, place, &layouts[0], Role::Begin)?);
        let goid = self.goroutines(&[place]);
        let rule = match goid {
            Some(_) => VisitRule::ByGoroutine,
            None => VisitRule::ByThread,
        };
        Ok(probe(id, spec, rule, goid, sites, layouts))
    }

    /// A function from entry to return. Arguments that use `retval` are read at the return.
    fn call(&mut self, id: ProbeId, spec: &Spec, place: &Place) -> Result<Probe, ResolveError> {
        let (late, early): (Vec<Arg>, Vec<Arg>) = spec
            .begin
            .args
            .iter()
            .cloned()
            .partition(|arg| arg.expr.uses_retval() && arg.name != "id");
        let first = begin_values(spec, &early, place)?;
        let second = values_at(spec, &late, place, Arguments::Return)?;
        let layouts = [self.layout(spec, first)?, self.layout(spec, second)?];
        let registers = [layouts[0].registers(), layouts[1].registers()];
        let mode = self.options.return_mode;
        let read = (&*registers[0], &*registers[1]);
        let (points, entry) = place.call(mode, read, &mut self.notes)?;
        let mut sites = Vec::new();
        for point in points {
            sites.push(self.site(id, place, &point, &layouts[1], Role::Return));
        }
        sites.push(self.site(id, place, &entry, &layouts[0], Role::Begin));
        let goid = self.goroutines(&[place]);
        let rule = match goid {
            Some(_) => VisitRule::GoCall,
            None => VisitRule::Call,
        };
        Ok(probe(id, spec, rule, goid, sites, layouts))
    }

    fn layout(&mut self, spec: &Spec, values: Values) -> Result<Layout, ResolveError> {
        let columns: &mut Vec<ArgColumn> = &mut self.set.columns;
        let ids = (values.id, values.batch);
        Layout::new(&spec.text, ids, &values.named, columns)
    }

    fn sites(
        &mut self,
        id: ProbeId,
        place: &Place,
        layout: &Layout,
        role: Role,
    ) -> Result<Vec<Site>, ResolveError> {
        let registers = layout.registers();
        let points = place.points(self.options.return_mode, &registers, &mut self.notes)?;
        Ok(points
            .iter()
            .map(|point| self.site(id, place, point, layout, role))
            .collect())
    }

    fn site(&self, id: ProbeId, place: &Place, point: &Point, layout: &Layout, role: Role) -> Site {
        let state = SiteState {
            // MAX_PROBES keeps the number within eight bits.
            probe: u8::try_from(id.0).unwrap_or(u8::MAX),
            sp_adjust: point.sp_adjust,
            read_adjust: if point.uretprobe { 0 } else { point.sp_adjust },
            condition: point.condition,
            step: point.step,
            readable: point.readable,
        };
        Site {
            path: place.binary.path.clone(),
            file_offset: point.file_offset,
            address: point.address,
            uretprobe: point.uretprobe,
            role,
            goes_on: point.goes_on.clone(),
            class: point.class,
            instruction: point.text.clone(),
            place: point.label.clone(),
            passed: point.passed,
            semaphore_offset: point.semaphore_offset,
            config: layout.config(role, state),
        }
    }
}

/// Returns the way to follow the goroutines of a binary; `None` if it is not a Go binary.
fn followed<'a>(
    known: &'a mut HashMap<PathBuf, Followed>,
    binary: &Binary,
) -> Option<&'a Followed> {
    if binary.language != Language::Go {
        return None;
    }
    let entry = known.entry(binary.path.clone());
    Some(entry.or_insert_with(|| goroutines::look_up(binary)))
}

/// Pairs every begin place with an end place, and every end place with a begin place.
fn pairs<'a>(
    begins: &'a [Place],
    ends: &'a [Place],
) -> impl Iterator<Item = (&'a Place, &'a Place)> {
    let count = begins.len().max(ends.len());
    (0..count).filter_map(move |n| {
        let nth = |places: &'a [Place]| places.get(n).or(places.last());
        nth(begins).zip(nth(ends))
    })
}

/// Adds places to a probe; an argument must have the same type at all of them.
fn merge(spec: &Spec, probe: &mut Option<Probe>, more: Probe) -> Result<(), SpecError> {
    let Some(probe) = probe else {
        *probe = Some(more);
        return Ok(());
    };
    let read = |it: &Probe| (it.begin_fields.clone(), it.end_fields.clone(), it.batch);
    if read(&more) != read(probe) {
        let what = "the arguments are not the same in all places that match";
        let fault = Fault::new(spec.begin.at, what).hint("probe them one by one");
        return Err(SpecError::new(&spec.text, fault));
    }
    // Functions that jump to the same function share its places.
    let place = |site: &Site| (site.address, site.uretprobe, site.role as u8);
    let known: HashSet<_> = probe.sites.iter().map(place).collect();
    let new = more.sites.into_iter();
    probe
        .sites
        .extend(new.filter(|site| !known.contains(&place(site))));
    Ok(())
}

/// Compiles the values read at begin marks.
fn begin_values(spec: &Spec, args: &[Arg], place: &Place) -> Result<Values, SpecError> {
    let mut values = values(spec, args, place)?;
    if let Some(ids) = &spec.begin.ids {
        let fault = |(what, hint)| {
            let at = ids.at;
            SpecError::new(&spec.text, Fault { at, what, hint })
        };
        let read = [&ids.array, &ids.count];
        if let Some(arity) = arity(spec, place, place.arguments(), read.into_iter()) {
            read.into_iter()
                .try_for_each(|expr| arity.check(expr))
                .map_err(fault)?;
        }
        let lowered =
            path::lower_ids(ids, &place.binary, place.scope(place.arguments())).map_err(fault)?;
        let batch = program::compile_ids(&lowered, place.arguments()).map_err(fault)?;
        values.batch = Some(batch);
    }
    Ok(values)
}

/// Compiles the arguments of one endpoint.
fn values(spec: &Spec, args: &[Arg], place: &Place) -> Result<Values, SpecError> {
    values_at(spec, args, place, place.arguments())
}

fn values_at(
    spec: &Spec,
    args: &[Arg],
    place: &Place,
    arguments: Arguments<'_>,
) -> Result<Values, SpecError> {
    let mut values = Values::default();
    let arity = arity(spec, place, arguments, args.iter().map(|arg| &arg.expr));
    for arg in args {
        let fault = |what: String, hint: Option<String>| {
            let at = arg.at;
            SpecError::new(&spec.text, Fault { at, what, hint })
        };
        if let Some(arity) = &arity {
            arity.check(&arg.expr).map_err(|(w, h)| fault(w, h))?;
        }
        let lowered = path::lower(&arg.expr, &place.binary, place.scope(arguments));
        let Lowered { expr, names } = lowered.map_err(|(w, h)| fault(w, h))?;
        let compiled = program::compile(&expr, arguments).map_err(|(w, h)| fault(w, h))?;
        if arg.name != "id" {
            values.named.push(Named {
                name: arg.name.clone(),
                at: arg.at,
                compiled,
                names,
            });
        } else if compiled.slot() == 8 {
            values.id = Some(compiled);
        } else {
            let hint = "keep the string as a column of its own: name=str(arg1)".to_owned();
            return Err(fault("the item id must be a number".to_owned(), Some(hint)));
        }
    }
    Ok(values)
}

/// Arity of the function at a place; `None` if unknown. Not checked for patterns, which have many functions.
fn arity<'a>(
    spec: &Spec,
    place: &Place,
    arguments: Arguments<'_>,
    mut read: impl Iterator<Item = &'a Expr>,
) -> Option<Arity> {
    let is_pattern = matches!(&spec.begin.location, Location::Function(name) if name.contains('*'));
    let is_asked = matches!(arguments, Arguments::SysV) && !is_pattern;
    if !is_asked || !read.any(|expr| arity::last_argument(expr).is_some()) {
        return None;
    }
    Arity::of(&place.binary, place.scope(arguments).function?)
}

fn probe(
    id: ProbeId,
    spec: &Spec,
    rule: VisitRule,
    goid: Option<u64>,
    mut sites: Vec<Site>,
    [begin, end]: [Layout; 2],
) -> Probe {
    for site in &mut sites {
        site.config.goid = goid.unwrap_or(0);
    }
    Probe {
        id,
        spec: spec.text.clone(),
        rule,
        resumes: false,
        has_id: begin.id.is_some(),
        batch: begin.batch.map(|batch| batch.r#type),
        sites,
        begin_fields: begin.fields,
        end_fields: end.fields,
    }
}

#[cfg(test)]
mod names;
#[cfg(test)]
mod tests;

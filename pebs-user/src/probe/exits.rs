//! Finds the cheapest instructions on a function's ways out, such that each way passes exactly one.
//!
//! A probe on a `ret` is single-stepped, which costs ten times as much as one on a branch, a jump or a nop. So the
//! probe may move to such an instruction if only an epilogue lies between: a few moves, arithmetic instructions,
//! pops and jumps, with no call, loop or system call. These instructions are the *tail* of the
//! function: control that enters the tail leaves the function soon, without looping.
//!
//! The choice is a minimum cut. Between two instructions, the end of a visit has been marked or not; where several
//! ways meet, this must be the same for all of them. An instruction is an arc from the point before it to the point
//! after it, with the cost of a probe there times its frequency as capacity; no cut may cross it backwards. Where
//! control enters the tail nothing is marked yet (the source), behind each exit it is (the sink). So each cut
//! passes each way exactly once, and the one of least cost is taken; of several the one nearest to the exits. As
//! each way has one probe, the exact cost ratio of a single step to an emulated instruction does not matter.
//!
//! A conditional branch outside of the tail whose one side enters it may mark the end, too: the flags say which side
//! it will be. In the network it is an arc of its own from the source to the place that it enters. The program is
//! hit on the other side as well, without a mark, so branches in loops are left out, and the cost counts all ends
//! that may follow the branch. A conditional jump out of the function is marked in the same way.
//!
//! Invariant: `passes`, a check of its own on the same graph, finds exactly one probe on each way through the function.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use pebs_common::condition::Condition;

use super::body::{self, Body};
use crate::arch::unwind::RETURN_ADDRESS_BYTES;
use crate::arch::{EntryClass, Flow, Instruction, Kernel, Register, idioms};
use crate::binary::elf::Binary;
use crate::binary::frames::Depth;

/// Maximum number of instructions between a probe and the exit.
const MAX_TAIL: usize = 32;

/// Maximum number of entries of a jump table.
const MAX_TABLE: usize = 4096;

/// Cost above all sums of valid costs: the kernel refuses the instruction.
const REFUSED: u64 = 1 << 44;

/// Cost above that, for places that would be wrong.
const WRONG: u64 = 1 << 56;

/// Weight of one pass through the tail.
const PASS: f64 = 64.0;

/// A place where visits end.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EndSite {
    /// Virtual address in the file.
    pub address: u64,
    /// Cost class.
    pub class: EntryClass,
    /// The instruction, disassembled.
    pub text: String,
    /// It leads only to a `ret`, where the result is known; else to a tail jump, where it is not known yet.
    pub result_known: bool,
    /// Offset from the stack pointer there to the stack pointer at the function's first instruction.
    pub sp_adjust: i64,
    /// Visits end here only if the instruction, a branch, goes to the side that has this condition.
    pub condition: Option<Condition>,
    /// Number of other sites with a condition that a visit passes before, without a mark; an estimate.
    pub passed: f64,
}

impl EndSite {
    /// The end of visits on one side of a branch.
    fn on_side(branch: &Instruction, class: EntryClass, taken: bool) -> Option<Self> {
        let condition = branch.condition()?;
        let (condition, side) = match taken {
            true => (condition, "taken"),
            false => (condition.negated(), "not taken"),
        };
        Some(Self {
            address: branch.address(),
            class,
            text: format!("{}, {side}", branch.text()),
            result_known: false,
            sp_adjust: 0,
            condition: Some(condition),
            passed: 0.0,
        })
    }
}

/// Control flow graph of a function, by index into `code`.
pub(super) struct Graph {
    /// Every instruction of all parts, by address.
    pub code: Vec<Instruction>,
    /// Successors of each instruction within the function.
    pub next: Vec<Vec<usize>>,
    /// Places that control may reach from elsewhere: the entry, jump table targets, and instructions without a
    /// known predecessor.
    pub starts: BTreeSet<usize>,
    /// Edges that lead to the report of a smashed stack, which does not return.
    dead: BTreeSet<(usize, usize)>,
    /// Whether the targets of all switches are known.
    pub tables_known: bool,
}

impl Graph {
    /// Reads the parts of a function; `outside` are its exits by address.
    pub(super) fn read(binary: &Binary, bodies: &[Body], exits: &BTreeSet<u64>) -> Self {
        let mut code: Vec<Instruction> = bodies.iter().flat_map(|b| b.code.clone()).collect();
        code.sort_by_key(Instruction::address);
        let at: HashMap<u64, usize> = code.iter().map(Instruction::address).zip(0..).collect();
        let tables = Tables::read(binary, &code, &at, exits);
        let mut next = vec![Vec::new(); code.len()];
        for (index, instruction) in code.iter().enumerate() {
            if exits.contains(&instruction.address()) {
                continue;
            }
            let falls = instruction.flow().falls_through();
            let to = instruction.jump_target();
            let falls = falls.then(|| instruction.next());
            for address in falls.into_iter().chain(to) {
                if let Some(to) = at.get(&address)
                    && !next[index].contains(to)
                {
                    next[index].push(*to);
                }
            }
        }
        let mut starts: BTreeSet<usize> = tables.targets;
        if let Some(entry) = bodies.first().and_then(|body| at.get(&body.range.start)) {
            starts.insert(*entry);
        }
        let mut led_to = vec![0_usize; code.len()];
        next.iter().flatten().for_each(|&to| led_to[to] += 1);
        for index in 0..code.len() {
            if led_to[index] > 0 || starts.contains(&index) {
                continue;
            }
            if code[index].is_nop() {
                // Padding, which is never executed.
                let padding = std::mem::take(&mut next[index]);
                padding.into_iter().for_each(|to| led_to[to] -= 1);
            } else {
                starts.insert(index);
            }
        }
        let dead = dead_ends(&code, &next);
        // The abort handler of a transaction is not followed.
        let transacts = |i: &Instruction| i.flow() == Flow::Transaction;
        let tables_known = tables.known && !code.iter().any(transacts);
        Self {
            code,
            next,
            starts,
            dead,
            tables_known,
        }
    }

    /// Successors of an instruction, except the report of a smashed stack.
    fn live(&self, index: usize) -> impl Iterator<Item = usize> + '_ {
        let next = self.next[index].iter().copied();
        next.filter(move |to| !self.dead.contains(&(index, *to)))
    }

    /// Whether control gets to `to` from the instruction at `from`, and from nowhere else.
    pub(super) fn leads_only(&self, from: u64, to: u64) -> bool {
        let (Some(from), Some(to)) = (self.index_of(from), self.index_of(to)) else {
            return false;
        };
        let leads = |(_, next): &(usize, &Vec<usize>)| next.contains(&to);
        let before = self.next.iter().enumerate().filter(leads);
        !self.starts.contains(&to) && before.map(|(index, _)| index).eq([from])
    }

    fn index_of(&self, address: u64) -> Option<usize> {
        self.code
            .binary_search_by_key(&address, Instruction::address)
            .ok()
    }

    /// Instructions that control may get to from these, but not through the instruction `except`.
    fn reached(&self, from: impl IntoIterator<Item = usize>, except: Option<usize>) -> Vec<bool> {
        let mut reached = vec![false; self.code.len()];
        let mut waiting: Vec<usize> = from.into_iter().collect();
        while let Some(at) = waiting.pop() {
            if Some(at) == except || std::mem::replace(&mut reached[at], true) {
                continue;
            }
            waiting.extend(&self.next[at]);
        }
        reached
    }
}

/// Branches of a stack-protector check that lead to its report: from and to.
fn dead_ends(code: &[Instruction], next: &[Vec<usize>]) -> BTreeSet<(usize, usize)> {
    let mut found = BTreeSet::new();
    for (index, pair) in code.windows(2).enumerate() {
        let [check, branch] = pair else { continue };
        if !idioms::checks_stack(check) || !matches!(branch.flow(), Flow::Branch(_)) {
            continue;
        }
        for &to in &next[index + 1] {
            if idioms::begins_with_call(&code[to..]) {
                found.insert((index + 1, to));
            }
        }
    }
    found
}

/// Jump tables of a function.
struct Tables {
    targets: BTreeSet<usize>,
    known: bool,
}

impl Tables {
    /// Reads every jump table that the function refers to; `known` says whether each of its switches has one.
    ///
    /// A switch adds a four-byte entry to the address of its table, which is given by some `lea` in the function.
    /// So all addresses that the function takes are tried: wrong ones only add places at which nothing is marked
    /// yet, which is safe. A table ends at an entry that leads to no instruction of the function.
    fn read(
        binary: &Binary,
        code: &[Instruction],
        at: &HashMap<u64, usize>,
        exits: &BTreeSet<u64>,
    ) -> Self {
        let mut tables = Self {
            targets: BTreeSet::new(),
            known: true,
        };
        let is_switch =
            |i: &&Instruction| i.flow() == Flow::IndirectJump && !exits.contains(&i.address());
        if !code.iter().any(|i| is_switch(&i)) {
            return tables;
        }
        let mut relative = 0;
        for table in idioms::addresses_taken(code) {
            let entries = (0..MAX_TABLE as u64).map_while(|n| {
                let entry = table.checked_add(n * 4)?;
                let bytes = binary.bytes(&(entry..entry.checked_add(4)?));
                let offset = i32::from_le_bytes(bytes.try_into().ok()?);
                at.get(&table.wrapping_add_signed(i64::from(offset)))
                    .copied()
            });
            let before = tables.targets.len();
            tables.targets.extend(entries);
            relative += usize::from(tables.targets.len() > before);
        }
        for (index, jump) in code.iter().enumerate().filter(|(_, i)| is_switch(i)) {
            tables.known &= if idioms::is_through_register(jump) {
                relative > 0 && idioms::loads_entry(&code[..index])
            } else {
                tables.absolute(binary, jump, at)
            };
        }
        tables
    }

    /// Reads a table of absolute addresses.
    fn absolute(&mut self, binary: &Binary, jump: &Instruction, at: &HashMap<u64, usize>) -> bool {
        let Some(table) = idioms::absolute_table(jump) else {
            return false;
        };
        let entries = (0..MAX_TABLE as u64).map_while(|n| {
            let entry = table.checked_add(n * 8)?;
            let bytes = binary.bytes(&(entry..entry.checked_add(8)?));
            at.get(&u64::from_le_bytes(bytes.try_into().ok()?)).copied()
        });
        let found: Vec<usize> = entries.collect();
        self.targets.extend(&found);
        !found.is_empty()
    }
}

/// Requirements on the chosen places.
pub(super) struct Wanted<'a> {
    pub binary: &'a Binary,
    pub kernel: Kernel,
    /// Registers that the probes read.
    pub registers: &'a [Register],
    /// First and last instruction between which the function's entry may be marked.
    pub entry: (u64, u64),
}

/// Chooses the places for the exits `sites` of a function, and for the conditional jumps out of it at `leaving`.
/// Returns the places, and which of these jumps can't be marked.
///
/// # Errors
/// Why an exit can't be probed, if no instruction on the way to it can be either.
pub(super) fn cheapest(
    wanted: &Wanted<'_>,
    flow: &Graph,
    sites: &[EndSite],
    leaving: &BTreeSet<u64>,
) -> Result<(Vec<EndSite>, BTreeSet<u64>), String> {
    let mut tail = Tail::new(wanted, flow, sites);
    tail.grow();
    let chosen = tail.cut();
    let mut found = Vec::new();
    for index in chosen.instructions {
        let node = &tail.nodes[&index];
        let instruction = &flow.code[index];
        let class = node
            .place
            .map_err(|refusal| format!("'{}': {}", instruction.text(), refusal.why()))?;
        found.push(EndSite {
            address: instruction.address(),
            class,
            text: instruction.text(),
            result_known: node.rets && !node.tails,
            sp_adjust: node.sp_adjust.unwrap_or(0),
            condition: None,
            passed: 0.0,
        });
    }
    for side in chosen.sides {
        let node = &tail.nodes[&side.to];
        let site = EndSite::on_side(&flow.code[side.branch], side.class, side.taken);
        found.extend(site.map(|site| EndSite {
            result_known: node.rets && !node.tails,
            sp_adjust: node.sp_adjust.unwrap_or(0),
            ..site
        }));
    }
    let mut unmarked = BTreeSet::new();
    for &address in leaving {
        match tail.leaving(address) {
            Some(site) => found.push(site),
            None => {
                unmarked.insert(address);
            }
        }
    }
    found.sort_by_key(|site| site.address);
    count_passed(flow, &mut found);
    Ok((found, unmarked))
}

/// Estimates how many sites with a condition a visit passes before it ends at each site: the mean of those that it
/// must pass and of those that it may pass.
fn count_passed(flow: &Graph, sites: &mut [EndSite]) {
    let index = |site: &EndSite| flow.index_of(site.address);
    let conditional = sites.iter().filter(|site| site.condition.is_some());
    let branches: Vec<usize> = conditional.filter_map(index).collect();
    for branch in branches {
        let after = flow.reached(flow.next[branch].iter().copied(), None);
        let without = flow.reached(flow.starts.iter().copied(), Some(branch));
        for site in &mut *sites {
            if let Some(at) = flow.index_of(site.address)
                && at != branch
                && after[at]
            {
                site.passed += if without[at] { 0.5 } else { 1.0 };
            }
        }
    }
}

/// One side of a branch outside of the tail, which enters it.
#[derive(Clone, Copy, Debug)]
struct Side {
    branch: usize,
    /// The instruction of the tail.
    to: usize,
    taken: bool,
    class: EntryClass,
    /// Number of ways into the tail that may follow the branch.
    weight: usize,
}

/// Minimum cut of the ways out of a function.
struct Cut {
    instructions: Vec<usize>,
    sides: Vec<Side>,
}

/// Why no probe may be placed at an instruction of the tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// The kernel does not probe it.
    Kernel(&'static str),
    /// The depth of the stack is unknown, or the tables disagree on it.
    Depth,
    /// The entry of the function may be marked there.
    Entry,
    /// A value that is read changes at it or behind it.
    Changes,
    /// It leads to a `ret` and to a tail jump, where different values are read.
    Mixed,
}

impl Refusal {
    const fn why(self) -> &'static str {
        match self {
            Self::Kernel(why) => why,
            Self::Depth => "the depth of the stack is unknown there",
            Self::Entry => "the function's entry is marked there",
            Self::Changes => "a value that is read changes behind it",
            Self::Mixed => "it leads to a return and to another function",
        }
    }
}

/// One instruction of the tail.
#[derive(Debug)]
struct Node {
    /// Class of a probe here.
    place: Result<EntryClass, Refusal>,
    /// Instructions from here to the farthest exit.
    length: usize,
    /// Offset from the stack pointer here to the stack pointer at the function's first instruction.
    sp_adjust: Option<i64>,
    /// A register that is read changes here or further on, or memory that may be read through it.
    changes: bool,
    /// Leads to a `ret`.
    rets: bool,
    /// Leads to a tail jump.
    tails: bool,
}

struct Tail<'a> {
    wanted: &'a Wanted<'a>,
    flow: &'a Graph,
    nodes: BTreeMap<usize, Node>,
    exits: BTreeSet<usize>,
    before: Vec<Vec<usize>>,
}

impl<'a> Tail<'a> {
    fn new(wanted: &'a Wanted<'a>, flow: &'a Graph, sites: &[EndSite]) -> Self {
        let mut before = vec![Vec::new(); flow.code.len()];
        for (from, next) in flow.next.iter().enumerate() {
            next.iter().for_each(|&to| before[to].push(from));
        }
        let mut nodes = BTreeMap::new();
        for site in sites {
            let Some(index) = flow.index_of(site.address) else {
                continue;
            };
            let node = Node {
                place: class_of(wanted, &flow.code[index]).map_err(Refusal::Kernel),
                length: 0,
                sp_adjust: Some(0),
                changes: false,
                rets: site.result_known,
                tails: !site.result_known,
            };
            nodes.insert(index, node);
        }
        let exits = nodes.keys().copied().collect();
        Self {
            wanted,
            flow,
            nodes,
            exits,
            before,
        }
    }

    /// Adds instructions whose successors are all in the tail.
    fn grow(&mut self) {
        if !self.flow.tables_known {
            return;
        }
        let mut waiting: VecDeque<usize> = self.exits.iter().copied().collect();
        while let Some(at) = waiting.pop_front() {
            for index in self.before[at].clone() {
                if !self.nodes.contains_key(&index)
                    && let Some(node) = self.node(index)
                {
                    self.nodes.insert(index, node);
                    waiting.push_back(index);
                }
            }
        }
    }

    /// An instruction as part of the tail, if all that it leads to is.
    fn node(&mut self, index: usize) -> Option<Node> {
        let instruction = self.flow.code[index];
        let next: Vec<usize> = self.flow.live(index).collect();
        if next.is_empty() || self.leaves_unseen(index) || !is_epilogue(&instruction) {
            return None;
        }
        let reached: Option<Vec<&Node>> = next.iter().map(|to| self.nodes.get(to)).collect();
        let reached = reached?;
        let length = 1 + reached.iter().map(|node| node.length).max()?;
        if length > MAX_TAIL {
            return None;
        }
        let (rets, tails) = (
            reached.iter().any(|node| node.rets),
            reached.iter().any(|node| node.tails),
        );
        let behind = reached[0].sp_adjust;
        let agreed = reached.iter().all(|node| node.sp_adjust == behind);
        let changes = reached.iter().any(|node| node.changes);
        let change = instruction.stack_change();
        let sp_adjust = behind
            .filter(|_| agreed)
            .zip(change)
            .map(|(behind, change)| behind + change);
        // Arguments may be read through registers, too.
        let reads = self.wanted.registers;
        let stores = !reads.is_empty() && instruction.writes_memory();
        let changes = changes || stores || instruction.changes(reads);
        let place = if changes {
            Err(Refusal::Changes)
        } else if rets && tails && !reads.is_empty() {
            Err(Refusal::Mixed)
        } else {
            self.is_known(index, sp_adjust)
                .and_then(|()| class_of(self.wanted, &instruction).map_err(Refusal::Kernel))
        };
        Some(Node {
            place,
            length,
            sp_adjust,
            changes,
            rets,
            tails,
        })
    }

    /// Whether it is a conditional jump to another function, where its mark is made.
    fn leaves_unseen(&self, index: usize) -> bool {
        let instruction = &self.flow.code[index];
        let stays = match instruction.flow() {
            Flow::Branch(_) => 2,
            _ => 1,
        };
        // Both successors may be the same instruction.
        let same = instruction.jump_target() == Some(instruction.next());
        self.flow.next[index].len() < stays && !same
    }

    /// Relative frequency of each instruction, if control enters the tail equally often at each place and takes
    /// both ways of a branch equally often.
    fn passes(&self) -> BTreeMap<usize, f64> {
        let mut order: Vec<usize> = self.nodes.keys().copied().collect();
        order.sort_by_key(|index| std::cmp::Reverse(self.nodes[index].length));
        let mut passes: BTreeMap<usize, f64> = BTreeMap::new();
        for index in order {
            let entered = self.entered(index);
            let sum = passes.entry(index).or_default();
            *sum += entered as f64;
            let share = *sum / self.flow.live(index).count().max(1) as f64;
            if !self.exits.contains(&index) {
                self.flow
                    .live(index)
                    .for_each(|to| *passes.entry(to).or_default() += share);
            }
        }
        passes
    }

    /// Ways from outside to an instruction of the tail.
    fn entered(&self, index: usize) -> usize {
        let outside = |from: &&usize| !self.nodes.contains_key(*from);
        let from = self.before[index].iter().filter(outside).count();
        from + usize::from(self.flow.starts.contains(&index))
    }

    /// Checks that the end of a visit may be marked at an instruction of this depth, if control is past its entry there.
    fn is_known(&self, index: usize, sp_adjust: Option<i64>) -> Result<(), Refusal> {
        let address = self.flow.code[index].address();
        let (entry, last) = self.wanted.entry;
        // If the unwind table knows the depth, too, both must agree.
        let depth = self.wanted.binary.frames.depth_at(address);
        let known = match (sp_adjust, depth) {
            (Some(adjust), Some(Depth::Known(depth))) => depth == adjust + RETURN_ADDRESS_BYTES,
            (adjust, _) => adjust.is_some(),
        };
        match known {
            _ if (entry..=last).contains(&address) => Err(Refusal::Entry),
            true => Ok(()),
            false => Err(Refusal::Depth),
        }
    }

    /// The end at a conditional jump out of the function.
    fn leaving(&self, address: u64) -> Option<EndSite> {
        let index = self.flow.index_of(address)?;
        let branch = &self.flow.code[index];
        let class = class_of(self.wanted, branch).ok()?;
        let known = self.is_known(index, Some(0));
        EndSite::on_side(branch, class, true).filter(|_| known.is_ok())
    }

    /// Sides of branches outside of the tail at which an end may be marked.
    fn sides(&self) -> Vec<Side> {
        // Otherwise control might get into the tail in unknown ways.
        if !self.flow.tables_known {
            return Vec::new();
        }
        let outside = |from: &usize| !self.nodes.contains_key(from);
        let ways: Vec<usize> = self
            .nodes
            .keys()
            .flat_map(|&to| self.before[to].clone())
            .collect();
        let mut found = Vec::new();
        for (&to, node) in &self.nodes {
            if node.changes || node.rets && node.tails && !self.wanted.registers.is_empty() {
                continue;
            }
            for &branch in self.before[to].iter().filter(|it| outside(it)) {
                found.extend(self.side(branch, to, &ways));
            }
        }
        found
    }

    fn side(&self, branch: usize, to: usize, ways: &[usize]) -> Option<Side> {
        let instruction = &self.flow.code[branch];
        instruction.condition()?;
        let class = class_of(self.wanted, instruction).ok()?;
        let [one, other] = self.flow.next[branch][..] else {
            return None;
        };
        let other = if one == to { other } else { one };
        let known = self.is_known(branch, self.nodes[&to].sp_adjust).is_ok();
        if class != EntryClass::Emulated || !known || self.nodes.contains_key(&other) {
            return None;
        }
        let reached = self.flow.reached([other], None);
        let follow = ways
            .iter()
            .filter(|it| reached[**it] && !self.nodes.contains_key(*it));
        (!reached[branch]).then(|| Side {
            branch,
            to,
            taken: instruction.jump_target() == Some(self.flow.code[to].address()),
            class,
            weight: 1 + follow.count(),
        })
    }

    /// The places to probe: one on each way.
    fn cut(&self) -> Cut {
        let passes = self.passes();
        let sides = self.sides();
        // The point before an instruction is that after each which leads to it.
        let mut points = Points::default();
        for &index in self.nodes.keys() {
            points.add(Point::Before(index));
            points.add(Point::After(index));
        }
        for &index in self
            .nodes
            .keys()
            .filter(|index| !self.exits.contains(index))
        {
            for to in self.flow.live(index) {
                points.join(Point::After(index), Point::Before(to));
            }
        }
        let mut net = Network::new(points.parents.len() + 2);
        let (source, sink) = (points.parents.len(), points.parents.len() + 1);
        for (&index, node) in &self.nodes {
            let (from, to) = (
                points.find(Point::Before(index)),
                points.find(Point::After(index)),
            );
            let by_side = sides.iter().filter(|side| side.to == index);
            let costs = by_side.map(|side| {
                let weight = (side.weight as f64 * PASS).clamp(1.0, 1e6) as u64;
                side.class.relative_cost() * weight + 1
            });
            let mut number = 0;
            for cost in costs {
                net.arc(source, from, cost, WRONG);
                number += 1;
            }
            if self.entered(index) > number {
                net.arc(source, from, WRONG, 0);
            }
            if self.exits.contains(&index) {
                net.arc(to, sink, WRONG, 0);
            }
            let weight = (passes[&index] * PASS).clamp(1.0, 1e6) as u64;
            let cost = match node.place {
                Ok(class) => class.relative_cost() * weight + 1,
                Err(_) if self.exits.contains(&index) => REFUSED,
                Err(_) => WRONG,
            };
            net.arc(from, to, cost.min(WRONG), WRONG);
        }
        let behind = net.behind_cut(source, sink);
        let is_cut = |index: &&usize| {
            let (from, to) = (
                points.find(Point::Before(**index)),
                points.find(Point::After(**index)),
            );
            !behind[from] && behind[to]
        };
        let instructions = self.nodes.keys().filter(is_cut).copied().collect();
        let is_cut = |side: &Side| behind[points.find(Point::Before(side.to))];
        Cut {
            instructions,
            sides: sides.into_iter().filter(is_cut).collect(),
        }
    }
}

/// Whether an instruction may be between a probe and the exit.
fn is_epilogue(instruction: &Instruction) -> bool {
    match instruction.flow() {
        Flow::Next => idioms::is_simple(instruction),
        Flow::Branch(_) | Flow::Jump(_) => true,
        _ => false,
    }
}

fn class_of(wanted: &Wanted<'_>, instruction: &Instruction) -> Result<EntryClass, &'static str> {
    wanted.kernel.class(body::bytes(wanted.binary, instruction))
}

/// A point of the tail, before equal points are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Point {
    Before(usize),
    After(usize),
}

/// Union-find structure of points.
#[derive(Default)]
struct Points {
    numbers: HashMap<Point, usize>,
    parents: Vec<usize>,
}

impl Points {
    fn add(&mut self, point: Point) {
        let number = self.parents.len();
        self.numbers.insert(point, number);
        self.parents.push(number);
    }

    fn find(&self, point: Point) -> usize {
        let mut at = self.numbers[&point];
        while self.parents[at] != at {
            at = self.parents[at];
        }
        at
    }

    fn join(&mut self, one: Point, other: Point) {
        let (one, other) = (self.find(one), self.find(other));
        self.parents[one] = other;
    }
}

/// A network of arcs with capacities.
struct Network {
    /// Arcs that leave each point, by number.
    from: Vec<Vec<usize>>,
    /// Target and residual capacity of each arc; its reverse arc is adjacent (index ^ 1).
    arcs: Vec<(usize, u64)>,
}

impl Network {
    fn new(points: usize) -> Self {
        Self {
            from: vec![Vec::new(); points],
            arcs: Vec::new(),
        }
    }

    fn arc(&mut self, from: usize, to: usize, forth: u64, back: u64) {
        self.from[from].push(self.arcs.len());
        self.arcs.push((to, forth));
        self.from[to].push(self.arcs.len());
        self.arcs.push((from, back));
    }

    /// The points after the minimum cut that is nearest to the sink.
    ///
    /// By shortest augmenting paths (Edmonds and Karp, 1972): tails have a few dozen instructions.
    fn behind_cut(&mut self, source: usize, sink: usize) -> Vec<bool> {
        while let Some(path) = self.path(source, sink) {
            let least = path.iter().map(|&arc| self.arcs[arc].1).min().unwrap_or(0);
            if least == 0 {
                break;
            }
            for arc in path {
                self.arcs[arc].1 -= least;
                self.arcs[arc ^ 1].1 = self.arcs[arc ^ 1].1.saturating_add(least);
            }
        }
        let mut behind = vec![false; self.from.len()];
        behind[sink] = true;
        let mut waiting = vec![sink];
        while let Some(at) = waiting.pop() {
            for &arc in &self.from[at] {
                let (before, _) = self.arcs[arc];
                // Residual capacity from there to here.
                if self.arcs[arc ^ 1].1 > 0 && !behind[before] {
                    behind[before] = true;
                    waiting.push(before);
                }
            }
        }
        behind
    }

    fn path(&self, source: usize, sink: usize) -> Option<Vec<usize>> {
        let mut by = vec![usize::MAX; self.from.len()];
        let mut waiting = VecDeque::from([source]);
        while let Some(at) = waiting.pop_front() {
            for &arc in &self.from[at] {
                let (to, left) = self.arcs[arc];
                if left == 0 || to == source || by[to] != usize::MAX {
                    continue;
                }
                by[to] = arc;
                if to == sink {
                    let mut path = vec![arc];
                    let mut at = self.arcs[arc ^ 1].0;
                    while at != source {
                        path.push(by[at]);
                        at = self.arcs[by[at] ^ 1].0;
                    }
                    return Some(path);
                }
                waiting.push_back(to);
            }
        }
        None
    }
}

/// Checks the probes of a function: returns the exits that some path reaches past no probe or more than one.
///
/// Follows every path through the function's instructions with the number of marks made. `leaving` are the conditional
/// jumps out of the function that are marked.
#[cfg(test)]
#[must_use]
pub(super) fn passes(
    flow: &Graph,
    probes: &[EndSite],
    exits: &BTreeSet<u64>,
    leaving: &BTreeSet<u64>,
) -> Vec<(u64, usize)> {
    const MANY: usize = 2;
    let marks = |at: usize, to: Option<usize>| {
        let instruction = &flow.code[at];
        let here = probes
            .iter()
            .filter(|it| it.address == instruction.address());
        let taken = to.is_none_or(|to| instruction.jump_target() == Some(flow.code[to].address()));
        let side = instruction
            .condition()
            .map(|it| if taken { it } else { it.negated() });
        here.filter(|it| it.condition.is_none() || it.condition == side)
            .count()
    };
    let mut seen = vec![[false; MANY + 1]; flow.code.len()];
    let mut waiting: Vec<(usize, usize)> = flow.starts.iter().map(|&at| (at, 0)).collect();
    let mut wrong = BTreeSet::new();
    while let Some((at, count)) = waiting.pop() {
        if std::mem::replace(&mut seen[at][count], true) {
            continue;
        }
        let address = flow.code[at].address();
        let is_exit = exits.contains(&address);
        if is_exit || leaving.contains(&address) {
            let count = (count + marks(at, None)).min(MANY);
            if count != 1 {
                wrong.insert((address, count));
            }
        }
        if !is_exit {
            let with = |to| (to, (count + marks(at, Some(to))).min(MANY));
            waiting.extend(flow.live(at).map(with));
        }
    }
    wrong.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::Path;

    use super::super::ends::{self, Ends};
    use super::*;
    use crate::binary::testing::{Program, assembled, compile};

    const KERNEL: &str = "6.18";

    fn range(binary: &Binary, name: &str) -> std::ops::Range<u64> {
        let mut functions = binary.functions.iter();
        let function = functions.find(|f| f.name == name).expect("defined");
        binary.extent(function.address).expect("sized")
    }

    /// The places of a function's exits, each way passing one.
    fn places(program: &Program, name: &str, registers: &[Register]) -> Ends {
        let binary = program.open();
        let kernel = Kernel::from_release(KERNEL);
        let (wrong, ends) = ends::check(&binary, kernel, range(&binary, name), registers)
            .unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(wrong, [], "{name}: {ends:?}");
        ends
    }

    const SOURCE: &str = r#"
F(other, "xor %eax,%eax\n ret")
F(both, "mov %rdx,%r8\n mov %rsi,%rdi\n call other\n test %r8,%r8\n jne 1f\n ret\n1: mov %r8,%rdi\n jmp other")
F(guarded, "push %rbx\n .cfi_adjust_cfa_offset 8\n sub $16,%rsp\n .cfi_adjust_cfa_offset 16\n call other\n"
    " mov 8(%rsp),%rdx\n sub %fs:40,%rdx\n jne 1f\n add $16,%rsp\n .cfi_adjust_cfa_offset -16\n pop %rbx\n"
    " .cfi_adjust_cfa_offset -8\n ret\n .cfi_adjust_cfa_offset 24\n1: call other")
F(result, "push %rbx\n .cfi_adjust_cfa_offset 8\n call other\n test %edi,%edi\n je 1f\n1: mov %rbx,%rax\n"
    " pop %rbx\n .cfi_adjust_cfa_offset -8\n ret")
F(stores, "call other\n test %edi,%edi\n je 1f\n nop\n1: mov %rax,(%rsi)\n ret")
F(calls, "call other\n test %edi,%edi\n je 1f\n call other\n1: ret")
F(round, "call other\n1: dec %edi\n jne 1b\n ret")
F(shared, "call other\n test %edi,%edi\n je 2f\n call other\n jmp 1f\n2: call other\n jmp 1f\n nop\n1: ret")
F(through, "call other\n test %edi,%edi\n je 2f\n call other\n2: xor %eax,%eax\n ret")
F(maybe, "call other\n test %edi,%edi\n jne other\n test %esi,%esi\n je 1f\n1: ret")
F(leaf, "test %edi,%edi\n je 1f\n mov %edi,%eax\n ret\n1: xor %eax,%eax\n ret")
F(table, "push %rbx\n .cfi_adjust_cfa_offset 8\n call other\n cmp $1,%edi\n ja 1f\n lea 9f(%rip),%rdx\n"
    " movslq (%rdx,%rdi,4),%rax\n add %rdx,%rax\n jmp *%rax\n"
    "8: nop\n1: nop\n3: pop %rbx\n .cfi_adjust_cfa_offset -8\n ret\n"
    ".section .rodata\n9: .long 8b-9b, 3b-9b\n.text\n")
int main(void) { return 0; }
"#;

    fn texts(program: &Program, name: &str, registers: &[Register]) -> Vec<String> {
        let ends = places(program, name, registers);
        let text = |site: &EndSite| {
            let word = site.text.split(' ').next().unwrap_or_default();
            format!("{word} {}", site.sp_adjust)
        };
        ends.sites.iter().map(text).collect()
    }

    /// Branches, jumps and nops after the last call are probed in place of the exits that they lead to.
    #[test]
    fn cheap_places() {
        let program = assembled(SOURCE);
        let texts = |name| texts(&program, name, &[]);
        assert_eq!(texts("both"), ["jne 0"], "both ways by one");
        assert_eq!(texts("guarded"), ["jne 24"]);
        assert_eq!(texts("shared"), ["jmp 0", "jmp 0"]);
        assert_eq!(texts("result"), ["je 8"]);
        assert_eq!(texts("stores"), ["je 0"]);
        assert!(!places(&program, "both", &[]).sites[0].result_known);
    }

    /// A probe stays on the exit if a call is in between, a way joins in between, or the ways differ.
    #[test]
    fn dear_places() {
        let program = assembled(SOURCE);
        let texts = |name| texts(&program, name, &[]);

        assert_eq!(texts("calls"), ["ret 0"]);
        assert_eq!(texts("round"), ["ret 0"]);
        assert_eq!(texts("through"), ["ret 0"]);
        assert_eq!(texts("maybe"), ["jne 0", "je 0"]);
        assert_eq!(
            texts("leaf"),
            ["ret 0", "ret 0"],
            "the branch is the entry's"
        );
        assert_eq!(texts("table"), ["ret 0"], "a case comes in behind the nops");
    }

    /// Registers that a probe reads have their final values there.
    #[test]
    fn results() {
        let program = assembled(SOURCE);
        let rax = [Register::RESULT];
        assert_eq!(texts(&program, "result", &rax), ["ret 0"]);
        assert_eq!(texts(&program, "stores", &rax), ["ret 0"]);
        assert_eq!(texts(&program, "guarded", &rax), ["jne 24"]);
        assert!(places(&program, "guarded", &rax).sites[0].result_known);
        // One place has a result, the other none yet.
        assert_eq!(texts(&program, "both", &rax), ["ret 0", "jmp 0"]);
    }

    /// In functions with random branches each path passes one probe.
    #[test]
    fn random_functions() {
        let mut seed = 20_u64;
        let mut dice = |sides: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % sides
        };
        let mut source = String::from("__asm__(\".text\\n\"\n");
        const COUNT: u64 = 400;
        for n in 0..COUNT {
            let _ = writeln!(
                source,
                "\".globl f{n}\\n.type f{n},@function\\nf{n}: .cfi_startproc\\n\""
            );
            let blocks = 2 + dice(9);
            for block in 0..blocks {
                let _ = write!(source, "\".Lb{n}_{block}: ");
                for _ in 0..dice(3) {
                    let filler = [
                        "mov %rdi,%rax",
                        "nop",
                        "call f0",
                        "xor %edx,%edx",
                        "mov %rax,(%rsi)",
                        "add $1,%ecx",
                    ];
                    let _ = write!(source, "{}\\n ", filler[dice(6) as usize]);
                }
                let to = dice(blocks);
                let leave = match dice(8) {
                    0 => "ret".to_owned(),
                    1 => "jmp f1".to_owned(),
                    2 => format!("jmp .Lb{n}_{to}"),
                    3 => "nop".to_owned(),
                    _ => format!("test %edi,%edi\\n je .Lb{n}_{to}"),
                };
                let _ = writeln!(source, "{leave}\\n\"");
            }
            let _ = writeln!(source, "\"ret\\n.cfi_endproc\\n.size f{n},.-f{n}\\n\"");
        }
        source.push_str(");\nint main(void) { return 0; }\n");
        let program = compile("gcc", &source, &["-no-pie"]);
        let binary = program.open();
        let kernel = Kernel::from_release(KERNEL);
        let (mut cheap, mut read) = (0, 0);
        for n in 0..COUNT {
            for registers in [&[][..], &[Register::RESULT]] {
                let range = range(&binary, &format!("f{n}"));
                let (wrong, ends) = ends::check(&binary, kernel, range, registers).expect("clear");
                assert_eq!(wrong, [], "f{n}: {ends:?}");
                let moved = |s: &&EndSite| s.class != EntryClass::SingleStep;
                let count = ends.sites.iter().filter(moved).count();
                *if registers.is_empty() {
                    &mut cheap
                } else {
                    &mut read
                } += count;
            }
        }
        assert!(cheap > 100 && read > 20 && read <= cheap, "{cheap} {read}");
    }

    /// The same for every function of stock binaries.
    #[test]
    fn stock_binaries() {
        let kernel = Kernel::from_release(KERNEL);
        for path in [
            "/bin/ls",
            "/usr/bin/redis-check-rdb",
            "/lib/x86_64-linux-gnu/libsqlite3.so.0",
        ] {
            let binary = Binary::open(Path::new(path)).expect("installed");
            let (mut cheap, mut all) = (0, 0);
            for range in binary.frames.ranges() {
                let Ok((wrong, ends)) = ends::check(&binary, kernel, range.clone(), &[]) else {
                    continue;
                };
                assert_eq!(wrong, [], "{path} {range:x?}: {ends:?}");
                all += 1;
                let moved = |s: &EndSite| s.class != EntryClass::SingleStep;
                cheap += usize::from(ends.sites.iter().all(moved));
            }
            eprintln!("{path}: {cheap} of {all}");
            assert!(cheap * 10 > all, "{path}: {cheap} of {all}");
        }
    }
}

//! Layout of the named arguments of a probe: columns of the trace, bytes of the record.

use pebs_common::condition::Condition;
use pebs_common::config::{ArgProgram, MAX_ARGS, SiteConfig, Step, id_source};
use pebs_common::record::{ARG_CLASSES, Role, batch};

use super::error::ResolveError;
use super::path::Names;
use super::program::{Batch, Compiled};
use super::set::ArgField;
use crate::spec::SpecError;
use crate::spec::expr::Fault;
use crate::store::schema::{ArgColumn, ArgType, Table};

/// A compiled argument and its position in the SPEC.
#[derive(Clone, Debug)]
pub(super) struct Named {
    /// Name of the column.
    pub name: String,
    /// Byte in the SPEC.
    pub at: usize,
    /// Program that reads the value.
    pub compiled: Compiled,
    /// Names of its values, if it is an enumeration.
    pub names: Option<Names>,
}

impl Named {
    fn column_type(&self) -> ArgType {
        self.names
            .as_ref()
            .map_or(self.compiled.r#type, |_| ArgType::Str)
    }
}

/// Arguments of the marks of one role.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    /// Item id.
    pub id: Option<Compiled>,
    /// Ids of a batch, in its place.
    pub batch: Option<Batch>,
    named: Vec<(Compiled, u16)>,
    /// Bytes of the payload.
    payload: u32,
    /// The named ones need not exist: that one can't be read is not a fault.
    may_lack: bool,
    /// Fields that are decoded from them.
    pub fields: Vec<ArgField>,
}

impl Layout {
    /// Lays out the arguments of one role one after the other, and gives each its column.
    pub(super) fn new(
        spec: &str,
        (id, batch): (Option<Compiled>, Option<Batch>),
        named: &[Named],
        columns: &mut Vec<ArgColumn>,
    ) -> Result<Self, ResolveError> {
        let limit = match &batch {
            Some(_) => batch::COUNT,
            None => ARG_CLASSES[ARG_CLASSES.len() - 1],
        };
        let mut layout = Self {
            id,
            batch,
            ..Self::default()
        };
        let mut offset = 0;
        for (bit, argument) in (0_u32..).zip(named) {
            let fault = |what: String| SpecError::new(spec, Fault::new(argument.at, what));
            if bit as usize == MAX_ARGS {
                return Err(fault(format!("more than {MAX_ARGS} named arguments")).into());
            }
            let column = column(spec, argument, columns)?;
            let end = offset + argument.compiled.slot();
            let reach = match &layout.batch {
                // Arguments after this one are written later.
                Some(_) => end,
                None => offset + argument.compiled.reach(),
            };
            layout.payload = layout.payload.max(reach);
            if layout.payload as usize > limit {
                return Err(fault(format!(
                    "the arguments take {} bytes up to here, {limit} at most; shorten the \
                     strings: str(x, LEN)",
                    layout.payload
                ))
                .into());
            }
            layout.fields.push(ArgField {
                column,
                bit,
                offset: offset as usize,
                r#type: argument.compiled.r#type,
                names: argument.names.clone(),
                redact: None,
            });
            let place = u16::try_from(offset).unwrap_or(u16::MAX);
            layout.named.push((argument.compiled.clone(), place));
            offset = end;
        }
        Ok(layout)
    }

    /// Values of the tool's own marks, which are no columns: numbers of 8 bytes, one after the other. They need not exist.
    pub(super) fn own(id: Option<Compiled>, values: Vec<Compiled>) -> Self {
        let named: Vec<_> = values.into_iter().zip((0..).step_by(8)).collect();
        Self {
            id,
            payload: 8 * named.len() as u32,
            may_lack: true,
            named,
            ..Self::default()
        }
    }

    /// Registers that a site of this role reads.
    pub(super) fn registers(&self) -> Vec<crate::arch::Register> {
        let named = self.named.iter().map(|(compiled, _)| compiled);
        let named =
            named.flat_map(|it| [it.register, it.length.as_ref().and_then(|it| it.register)]);
        let ids = self.batch.iter().flat_map(|it| [&it.array, &it.count]);
        let ids = self.id.iter().chain(ids).map(|id| id.register);
        ids.chain(named).flatten().collect()
    }

    /// Configuration of a site for the eBPF program. A result that is not known there is not read.
    pub(super) fn config(&self, role: Role, at: SiteState) -> SiteConfig {
        let program = |compiled: &Compiled| compiled.program(at.read_adjust, 0);
        let (id, count) = match &self.batch {
            Some(batch) => (Some(&batch.array), Some(&batch.count)),
            None => (self.id.as_ref(), None),
        };
        let mut config = SiteConfig {
            probe: at.probe,
            role: role as u8,
            args: u8::try_from(self.named.len()).unwrap_or(u8::MAX),
            has_id: match (id, count) {
                (None, _) => id_source::NONE,
                (Some(_), None) => id_source::ONE,
                (Some(_), Some(_)) => id_source::BATCH,
            },
            // At most a few hundred bytes.
            payload: u16::try_from(self.payload).unwrap_or(u16::MAX),
            condition: at.condition.map_or(0, Condition::code),
            may_lack: u8::from(self.may_lack),
            sp_adjust: at.sp_adjust,
            step: at.step,
            goid: 0,
            id: id.map_or(ArgProgram::NONE, program),
            count: count.map_or(ArgProgram::NONE, program),
            named: [ArgProgram::NONE; MAX_ARGS],
            lengths: [ArgProgram::NONE; MAX_ARGS],
        };
        if at.readable {
            for (n, (compiled, offset)) in self.named.iter().enumerate() {
                config.named[n] = compiled.program(at.read_adjust, *offset);
                if let Some(length) = &compiled.length {
                    config.lengths[n] = program(length);
                }
            }
        }
        config
    }
}

/// State of a site when its mark is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct SiteState {
    /// Number of the probe.
    pub probe: u8,
    /// Offset from the stack pointer to its value at the first instruction.
    pub sp_adjust: i64,
    /// Added to the stack pointer where an argument starts from it.
    pub read_adjust: i64,
    /// A mark is made only under this condition.
    pub condition: Option<Condition>,
    /// Work of the mark program in place of the instruction.
    pub step: Step,
    /// The named arguments exist there.
    pub readable: bool,
}

/// The column of an argument: an existing one of the same name and type, or a new one.
fn column(
    spec: &str,
    argument: &Named,
    columns: &mut Vec<ArgColumn>,
) -> Result<usize, ResolveError> {
    let fixed = Table::Visits.columns();
    if fixed.iter().any(|column| column.name == argument.name) {
        let fault = Fault::new(
            argument.at - argument.name.len() - 1,
            format!("'{}' is a column of every trace", argument.name),
        )
        .hint("give the argument another name");
        return Err(SpecError::new(spec, fault).into());
    }
    let r#type = argument.column_type();
    if let Some(at) = columns.iter().position(|c| c.name == argument.name) {
        if columns[at].r#type == r#type {
            return Ok(at);
        }
        return Err(ResolveError::ColumnType {
            name: argument.name.clone(),
            first: name(columns[at].r#type).to_owned(),
            second: name(r#type).to_owned(),
        });
    }
    columns.push(ArgColumn {
        name: argument.name.clone(),
        r#type,
    });
    Ok(columns.len() - 1)
}

fn name(r#type: ArgType) -> &'static str {
    match r#type {
        ArgType::U64 => "an unsigned number",
        ArgType::I64 => "a signed number",
        ArgType::Str => "a string",
    }
}

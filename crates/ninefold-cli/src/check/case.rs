//! What a case is: a rule in one sentence, where it is written, and a function that tries it.

use std::pin::Pin;

use ninefold::proto::Dialect;
use ninefold::proto::dialect::DialectSet;

use super::cx::Cx;
use super::verdict::Outcome;

/// Cases on one subject, in the order in which they are run.
#[derive(Debug)]
pub struct Group {
    /// Small letters: the first half of its cases' names.
    pub name: &'static str,
    /// What it is about, in half a line.
    pub about: &'static str,
    pub cases: &'static [Case],
}

/// What a case cannot do without.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Needs {
    /// A connection.
    Nothing,
    /// An attach.
    Attach,
    /// A directory to write in.
    Write,
}

/// What [`Case::run`] returns.
pub type Running<'a> = Pin<Box<dyn Future<Output = Outcome> + 'a>>;

/// One rule.
#[derive(Debug)]
pub struct Case {
    /// The function's name; see [`Case::name`].
    pub function: &'static str,
    pub rule: &'static str,
    /// Where the rule is written: `walk(5)` is Plan 9's manual, section 5.
    pub source: &'static str,
    pub dialects: DialectSet,
    pub needs: Needs,
    pub run: for<'a> fn(&'a mut Cx) -> Running<'a>,
}

impl Case {
    /// `walk/zero-names-clone`.
    pub fn name(&self, group: &Group) -> String {
        format!("{}/{}", group.name, self.function.replace('_', "-"))
    }

    pub fn is_in(&self, dialect: Dialect) -> bool {
        self.dialects.has(dialect)
    }
}

/// A row of a group's table: function, dialects (P 9P2000, U .u, L .L), what it needs, source, rule.
macro_rules! case {
    ($function:ident, $dialects:ident, $needs:ident, $source:literal, $rule:literal) => {
        $crate::check::case::Case {
            function: stringify!($function),
            rule: $rule,
            source: $source,
            dialects: ninefold::proto::dialect::DialectSet::$dialects,
            needs: $crate::check::case::Needs::$needs,
            run: |cx| Box::pin($function(cx)),
        }
    };
}
pub(super) use case;

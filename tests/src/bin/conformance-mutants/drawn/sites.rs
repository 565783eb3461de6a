//! Where a source file can be changed, and how: small changes of expressions and statements, each of
//! which can be chosen while the program runs. Constants, patterns and what macros take can't be, and
//! tests are left alone.

use std::collections::BTreeMap;
use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, BinOp, Block, Expr, ImplItemFn, Item, ItemFn, Lit, Pat, Stmt, Type, UnOp};

/// A place and what stands there instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Bytes of the file.
    pub range: Range<usize>,
    /// What is there when the mutant is on.
    pub changed: String,
    /// Whether it is a whole statement: else it is an expression.
    pub is_statement: bool,
    pub change: String,
}

/// The sites of a file, by the line (from 0) that the change is on.
pub fn of(text: &str) -> Result<BTreeMap<usize, Vec<Site>>, String> {
    let file = syn::parse_file(text).map_err(|error| error.to_string())?;
    let mut finder = Finder {
        text,
        sites: BTreeMap::new(),
    };
    finder.visit_file(&file);
    Ok(finder.sites)
}

struct Finder<'a> {
    text: &'a str,
    sites: BTreeMap<usize, Vec<Site>>,
}

impl Finder<'_> {
    fn of(&self, what: &impl Spanned) -> &str {
        &self.text[what.span().byte_range()]
    }

    /// Notes a change of `whole`, on the line where `at` begins.
    fn site(&mut self, whole: &impl Spanned, at: &impl Spanned, changed: String, change: String) {
        let site = Site {
            range: whole.span().byte_range(),
            changed,
            is_statement: false,
            change,
        };
        self.note(at.span().start().line - 1, site);
    }

    fn note(&mut self, line: usize, mut site: Site) {
        let of_line = self.sites.entry(line).or_default();
        let is_same = |other: &Site| other.range == site.range && other.changed == site.changed;
        if !of_line.iter().any(is_same) {
            site.change = numbered(site.change, of_line);
            of_line.push(site);
        }
    }

    fn negate(&mut self, expr: &Expr) {
        if !has_let(expr) {
            let changed = format!("!({})", self.of(expr));
            self.site(expr, expr, changed, "condition negated".to_string());
        }
    }

    /// The value of a call that is the last in its block or an arm.
    fn value(&mut self, expr: &Expr) {
        if matches!(expr, Expr::Call(_) | Expr::MethodCall(_)) && !is_some(expr) {
            let change = "call left out, its value the default".to_string();
            self.site(expr, expr, "Default::default()".to_string(), change);
        }
    }

    fn binary(&mut self, whole: &syn::ExprBinary) {
        let Some(other) = swapped(&whole.op) else {
            return;
        };
        if has_let(&whole.left) || has_let(&whole.right) {
            return;
        }
        let op = self.of(&whole.op).to_string();
        let changed = format!("{} {other} {}", self.of(&whole.left), self.of(&whole.right));
        self.site(whole, &whole.op, changed, format!("{op} is {other}"));
    }

    fn method(&mut self, whole: &syn::ExprMethodCall) {
        let name = whole.method.to_string();
        let range = whole.span().byte_range();
        if let Some((_, other)) = METHODS.iter().find(|(one, _)| *one == name) {
            let at = whole.method.span().byte_range();
            let (before, behind) = (
                &self.text[range.start..at.start],
                &self.text[at.end..range.end],
            );
            let changed = format!("{before}{other}{behind}");
            self.site(whole, &whole.method, changed, format!("{name} is {other}"));
        } else if YES_OR_NO
            .iter()
            .any(|yes_or_no| name.starts_with(yes_or_no))
        {
            let changed = format!("!({})", &self.text[range]);
            self.site(whole, &whole.method, changed, format!("{name} negated"));
        }
    }

    fn statement(&mut self, stmt: &Stmt) {
        let Stmt::Expr(expr, Some(_)) = stmt else {
            return;
        };
        let change = match expr {
            Expr::Call(_) | Expr::MethodCall(_) | Expr::Try(_) => "call left out",
            Expr::Assign(_) => "assignment left out",
            Expr::Binary(_) => "left out",
            Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) => "exit left out",
            _ => return,
        };
        let site = Site {
            range: stmt.span().byte_range(),
            changed: String::new(),
            is_statement: true,
            change: change.to_string(),
        };
        self.note(stmt.span().start().line - 1, site);
    }
}

/// Methods whose other one fits as well.
const METHODS: &[(&str, &str)] = &[
    ("min", "max"),
    ("max", "min"),
    ("saturating_sub", "wrapping_sub"),
    ("saturating_add", "wrapping_add"),
    ("wrapping_add", "wrapping_sub"),
    ("wrapping_sub", "wrapping_add"),
    ("is_some", "is_none"),
    ("is_none", "is_some"),
    ("is_ok", "is_err"),
    ("is_err", "is_ok"),
    ("any", "all"),
    ("all", "any"),
    ("first", "last"),
    ("last", "first"),
    ("front", "back"),
    ("back", "front"),
    ("push_back", "push_front"),
    ("push_front", "push_back"),
    ("pop_front", "pop_back"),
    ("pop_back", "pop_front"),
    ("min_by_key", "max_by_key"),
    ("max_by_key", "min_by_key"),
    ("div_ceil", "div_euclid"),
    ("or", "and"),
];

/// How methods begin whose result is true or false.
const YES_OR_NO: &[&str] = &[
    "is_",
    "has_",
    "may_",
    "can_",
    "contains",
    "starts_with",
    "ends_with",
    "eq",
];

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Mod(item) => &item.attrs,
            Item::Trait(item) => &item.attrs,
            // The others have values of constants at most.
            _ => return,
        };
        if !is_test(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if item.sig.constness.is_none() && !is_test(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if item.sig.constness.is_none() && !is_test(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !is_test(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_block(&mut self, block: &'ast Block) {
        for stmt in &block.stmts {
            self.statement(stmt);
        }
        if let Some(Stmt::Expr(last, None)) = block.stmts.last() {
            self.value(last);
        }
        visit::visit_block(self, block);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard {
            self.negate(guard);
        }
        self.value(&arm.body);
        visit::visit_arm(self, arm);
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        match expr {
            Expr::Const(_) => return,
            Expr::Repeat(repeat) => return self.visit_expr(&repeat.expr),
            Expr::If(whole) => self.negate(&whole.cond),
            Expr::Binary(whole) => self.binary(whole),
            Expr::MethodCall(whole) => self.method(whole),
            Expr::Unary(whole) if matches!(whole.op, UnOp::Not(_)) => {
                let changed = format!("({})", self.of(&whole.expr));
                self.site(whole, whole, changed, "! left out".to_string());
            }
            Expr::Macro(whole) if whole.mac.path.is_ident("matches") => self.negate(expr),
            Expr::Call(_) if is_some(expr) => {
                self.site(expr, expr, "None".to_string(), "Some is None".to_string());
            }
            Expr::Lit(whole) => match &whole.lit {
                Lit::Int(_) => {
                    let changed = format!("{} + 1", self.of(whole));
                    self.site(whole, whole, changed, "one more".to_string());
                }
                Lit::Bool(is) => {
                    let other = !is.value;
                    self.site(whole, whole, other.to_string(), format!("is {other}"));
                }
                _ => {}
            },
            _ => {}
        }
        visit::visit_expr(self, expr);
    }
}

/// A line may have several of one kind: the later ones are numbered.
pub fn numbered(change: String, of_line: &[Site]) -> String {
    let is_same = |site: &&Site| site.change.split(" (").next() == Some(&change);
    match of_line.iter().filter(is_same).count() {
        0 => change,
        others => format!("{change} ({})", others + 1),
    }
}

fn swapped(op: &BinOp) -> Option<&'static str> {
    Some(match op {
        BinOp::Lt(_) => "<=",
        BinOp::Le(_) => "<",
        BinOp::Gt(_) => ">=",
        BinOp::Ge(_) => ">",
        BinOp::Eq(_) => "!=",
        BinOp::Ne(_) => "==",
        BinOp::And(_) => "||",
        BinOp::Or(_) => "&&",
        BinOp::Add(_) => "-",
        BinOp::Sub(_) => "+",
        BinOp::Mul(_) => "+",
        BinOp::Div(_) => "*",
        BinOp::Shl(_) => ">>",
        BinOp::Shr(_) => "<<",
        BinOp::BitAnd(_) => "|",
        BinOp::BitOr(_) => "&",
        BinOp::BitXor(_) => "&",
        BinOp::AddAssign(_) => "-=",
        BinOp::SubAssign(_) => "+=",
        BinOp::BitOrAssign(_) => "&=",
        BinOp::BitAndAssign(_) => "|=",
        _ => return None,
    })
}

/// Whether it is a chain with `let`, which has no value of its own.
fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(both) => has_let(&both.left) || has_let(&both.right),
        _ => false,
    }
}

fn is_some(expr: &Expr) -> bool {
    matches!(expr, Expr::Call(call) if matches!(&*call.func, Expr::Path(path) if path.path.is_ident("Some")))
}

/// Whether it is built for tests or models only.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        let of_tests = ["test", "any(test", "loom", "all(loom", "all(test"];
        path.is_ident("test")
            || path.is_ident("cfg")
                && attribute
                    .parse_args::<proc_macro2::TokenStream>()
                    .is_ok_and(|of| {
                        let of = of.to_string().replace(' ', "");
                        of_tests.iter().any(|only| of.starts_with(only))
                    })
    })
}

//! Setters of options, which other crates can't write as literals: a field more must break no program.

/// For each field a method of its name that takes `$value` and gives the options with it.
macro_rules! setters {
    ($options:ident { $($field:ident: $value:ty,)* }) => {
        impl $options {
            $(
                #[doc = concat!("With another [`", stringify!($field), "`](Self#structfield.", stringify!($field), ").")]
                #[must_use]
                pub fn $field(mut self, $field: $value) -> Self {
                    self.$field = $field.into();
                    self
                }
            )*
        }
    };
}

pub(crate) use setters;

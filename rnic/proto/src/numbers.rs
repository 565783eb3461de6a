//! Tables of the numbers that names have on the wire, each written once and read both ways.

/// Error Types and Error Codes of a layer's errors (RFC 5040 Figure 9, RFC 5041 section 7.2).
macro_rules! error_numbers {
    ($layer:ident: $($error:ident = ($error_type:literal, $code:literal),)*) => {
        impl $layer {
            /// The Error Type: 0 is local.
            pub const fn error_type(self) -> u8 {
                self.numbers().0
            }

            /// The Error Code.
            pub const fn code(self) -> u8 {
                self.numbers().1
            }

            const fn numbers(self) -> (u8, u8) {
                match self {
                    $(Self::$error => ($error_type, $code),)*
                }
            }

            /// The error with these numbers, if there is one. A Local Catastrophic error may carry
            /// any code.
            pub const fn from_numbers(error_type: u8, code: u8) -> Option<Self> {
                Some(match (error_type, code) {
                    $(($error_type, $code) => Self::$error,)*
                    (0, _) => Self::LocalCatastrophic,
                    _ => return None,
                })
            }
        }
    };
}

/// Opcodes, each as the pattern and the value that it is.
macro_rules! opcode_numbers {
    ($opcodes:ident: $($number:literal = { $($opcode:tt)* },)*) => {
        impl $opcodes {
            /// The opcode with this number; none for the reserved ones.
            pub const fn from_number(number: u8) -> Option<Self> {
                Some(match number {
                    $($number => $($opcode)*,)*
                    _ => return None,
                })
            }

            /// Its number, four bits.
            pub const fn number(self) -> u8 {
                match self {
                    $($($opcode)* => $number,)*
                }
            }
        }
    };
}

pub(crate) use {error_numbers, opcode_numbers};

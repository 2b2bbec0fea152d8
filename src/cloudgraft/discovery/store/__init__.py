"""Discovery's database: tables, rows, statements, encrypted credentials."""

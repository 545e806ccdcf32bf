CREATE TABLE sales (
  item text PRIMARY KEY
);

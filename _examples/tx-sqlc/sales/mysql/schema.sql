CREATE TABLE sales (
  item varchar(255) PRIMARY KEY
);

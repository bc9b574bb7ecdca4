-- Schema 2: a node's name can be cordoned. The row of a node that is lost stays only for its cordon; LOST is 5.
ALTER TABLE node ADD COLUMN cordoned INTEGER NOT NULL DEFAULT 0;
DELETE FROM node WHERE state = 5;
